"""Sources of events and the commands that send them: labelled tables so far.

A source is two things: its next batch of rows, and a snapshot of its position. A load makes a fixed sequence
of blocks of it, and `producers.labelled.produce` sends them.
"""
