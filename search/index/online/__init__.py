"""The base of all indexes that follow a changing linear map in place, and the scan of all items.

It does not depend on hashing.
"""
