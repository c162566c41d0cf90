"""Result lists and what was clicked in them, in JSON lines and in the two layouts of tables, and the checks that they
share.
"""
