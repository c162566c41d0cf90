"""Models as services use them: announcements, loading, the newest version of a space and learner, how old it is.

No index and no catalogue.
"""
