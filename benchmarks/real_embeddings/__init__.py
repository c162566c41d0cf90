"""Corpora of the kind that people have: short texts embedded by all-MiniLM-L6-v2, and people who search them."""
