"""The values that travel and those that are stored: events, constraints, outcomes, models, the message around them, its
identity, and the state of an algorithm. It has no clients, no files and no clock.
"""
