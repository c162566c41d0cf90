"""What an operator's command does or asks beside the workers: dead letters, models, spaces, checkpoints, promotion. No
worker is started here.
"""
