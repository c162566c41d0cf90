"""One file for each other command, with its options and its output.

Code that two commands share is in `shared`, `views` or `local`; commands do not import each other.
"""
