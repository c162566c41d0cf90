"""Learners of several tables of features, matched by name, and the fusion of learners of one.

A file for each algorithm.
"""
