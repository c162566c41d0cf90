"""Results as tables or as JSON, shared by commands, and the aligned text of lists.

A view reads values and changes nothing.
"""
