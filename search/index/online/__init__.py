"""What every index shares that follows a changing linear map in place, and the scan of all items.

It knows no hashing.
"""
