"""Operator commands beside the workers: dead letters, models, spaces, checkpoints. They start no worker."""
