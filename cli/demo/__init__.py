"""The demonstrations of `kinstream demo`: what each one runs and sends, the live view, and the summary.

A user's own system needs none of it.
"""
