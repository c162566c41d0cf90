"""`kinstream produce`: one file for each kind of data, and the options and the summary that they share.

How files are read is the business of `producers`.
"""
