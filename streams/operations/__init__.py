"""What an operator's commands do beside the workers: dead letters, models, spaces, checkpoints, promotion. No worker is
started here.
"""
