"""Records as bytes and back, a file for each kind; decoding checks every value.

It does not depend on topics or clients.
"""
