"""Learned metrics compared with each other and with un-learned metrics, on splits of data sets."""
