"""Operator commands beside the workers: dead letters, models, spaces, checkpoints, promotion. They start no worker."""
