"""Records as bytes and back, a file for each kind, checked on the way in.

It knows no topic and no client.
"""
