"""Results as tables or as JSON, for commands that show the same thing, and the aligned text of lists.

A view reads values and changes nothing.
"""
