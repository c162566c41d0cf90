"""How a generation of an agent begins, continues and ends: birth record, numbers, final marks, parked partitions, and
the checks before a generation is opened.
"""
