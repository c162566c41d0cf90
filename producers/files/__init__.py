"""Files of columns and of JSON lines, opened by name, with values as Python or numpy types and errors that name file,
row and column. It does not depend on kinds of events.
"""
