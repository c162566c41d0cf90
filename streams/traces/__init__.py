"""Traces: which event led to which constraints, which model and which answer."""
