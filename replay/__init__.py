"""Logs and data sets through builders and learners, in one process: the agents' own machines, without a group."""
