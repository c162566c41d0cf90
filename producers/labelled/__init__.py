"""Labelled vectors: their batches, the sources that read them (tables, NPZ, arrays, bundled sets), held-out rows, and
the load that sends them.
"""
