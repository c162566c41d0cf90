"""Metrics behind several scalings of the same features, learned and un-learned, as one metric.

Everything that only a mixture of metrics needs. It may import learners of one modality and the shared rooms.
"""
