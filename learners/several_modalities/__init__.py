"""Learners of several tables of features, matched by name, and fusions of learners of one table.

A file for each algorithm.
"""
