"""Two rankings compared by the clicks of users: drafts of two lists, credit for clicks, and evidence.

Pure functions and values: no service, no topic.
"""
