"""Models for services: announcements, loading, the newest version of a space and learner, its age.

It does not depend on indexes or catalogues.
"""
