"""The inputs of an evaluation: rows or recorded constraints, splits, feeds, contenders, and the plan.

Nothing is learned or measured here.
"""
