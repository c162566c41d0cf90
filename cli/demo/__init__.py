"""The demonstrations of `kinstream demo`: what each runs and sends, the live view, and the summary.

Nothing that a user's own system needs.
"""
