"""Compiled hot loops. Nothing here knows records or states: arrays in, arrays changed in place."""
