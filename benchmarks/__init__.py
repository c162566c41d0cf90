"""Figures of the running system: `python -m benchmarks`, one module a benchmark."""
