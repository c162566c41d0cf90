"""Scales of features, from the first vectors and as they change."""
