"""Recorded constraints through changed settings, beside the recorded outcomes: the settings, the two sides, the saved
state, and its promotion to the next generation.
"""
