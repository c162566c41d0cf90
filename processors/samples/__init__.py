"""Builders of labelled samples, a file for each, and shared parts: reservoirs, target distances, counters."""
