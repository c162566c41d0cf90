"""Online metric learners: one file per algorithm, all driven by the same constraint blocks.

`kinstream.learners.registry.create("opml", gamma=1e-3)` makes one by name. Importing this package imports no
algorithm, and so neither numba nor torch.
"""
