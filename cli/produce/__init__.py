"""`kinstream produce`: one file for each kind of data, and the options and the summary that they share.

The package `producers` reads the files.
"""
