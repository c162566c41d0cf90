"""What an evaluation is given: rows or recorded constraints, splits, feeds, contenders, and the plan.

Nothing is learned or measured here.
"""
