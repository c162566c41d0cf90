"""The held-out share of a stream: which events are judged and never learned, and how the learned metric fares on them
beside un-learned ones.
"""
