"""Query maps for services: the newest one of a space, or that of a file. Items stay as they are.

It needs numpy and the follower of models, and knows no store.
"""
