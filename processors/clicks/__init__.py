"""The builder of click preferences: checked lists, filters, readings of clicks, co-clicks.

It knows nothing of relations.
"""
