"""Learned metrics held against each other and against metrics that learn nothing, on splits of data sets (spec 11)."""
