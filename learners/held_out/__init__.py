"""The held-out share of a stream: which events are judged and never learned, and a comparison of the learned metric
with un-learned ones on them.
"""
