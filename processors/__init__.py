"""Constraint builders: labelled samples, clicks and relations in, pairs and triplets out.

`kinstream.processors.registry.create("one-pass", seed=0)` creates one by name. Importing this package imports no
algorithm.
"""
