"""Baselines for online learners: Euclidean distance, and batch algorithms that are fitted again at intervals to the
latest constraints.
"""
