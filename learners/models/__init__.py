"""Exports of a learned model: a file of its map, an ONNX graph.

It may import every learner; no learner imports it.
"""
