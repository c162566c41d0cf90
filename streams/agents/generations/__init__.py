"""What begins, goes on and ends as one generation of an agent: birth record, numbers, final marks, parked partitions,
and the checks before any of it is opened.
"""
