"""One file for each other command, with its options and its output.

What two commands need is in `shared`, `views` or `local`; commands do not import each other.
"""
