"""The machine of one input partition, its spaces, what it refuses, and the order of a checkpoint.

The same code runs under a worker, in replay and in tests: no event loop, no faust.
"""
