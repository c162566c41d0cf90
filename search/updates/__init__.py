"""Indexes that follow every step of a learner by its update records, between announced models."""
