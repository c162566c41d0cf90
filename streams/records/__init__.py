"""The values that travel and those that are kept: events, constraints, outcomes, models, the message around them, its
identity, and the state of an algorithm. No clients, no files, no clock.
"""
