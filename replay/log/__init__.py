"""Builders and learners over a range of a topic or a data set, in one process: the agents' own machines, what they
read, and the comparison with the running system's checkpoints.
"""
