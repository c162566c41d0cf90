"""Builders of labelled samples, a file for each, and what only they share: reservoirs, target distances, counters."""
