"""The builder of click preferences: checked lists, filters, readings of clicks, co-clicks.

It does not depend on relations.
"""
