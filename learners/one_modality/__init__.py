"""Learners of one table of features, a file for each algorithm.

A learner that needs several tables, or other learners, is none of these.
"""
