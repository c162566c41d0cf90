"""OAHU: the learner, its network, its three ways of learning, and the votes of its layers.

No other learner imports its parts.
"""
