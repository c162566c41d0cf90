"""Searches as an evaluation: queries that were never learned from, and the adapter that libraries fit in batches."""
