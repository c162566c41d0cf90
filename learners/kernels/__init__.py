"""Compiled hot loops. They do not depend on records or states: arrays in, arrays changed in place."""
