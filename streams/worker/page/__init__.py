"""The page of a worker for probes and Prometheus.

It reads the worker through a protocol and imports nothing of it.
"""
