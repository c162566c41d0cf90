"""Sources of events and what sends them: labelled rows, catalogues, result lists, relations, simulated clicks.

A source is two things: its next batch of rows, and a snapshot of its position. A load makes a fixed sequence
of blocks of it, and `kinstream.producers.loads.sending.produce` sends them.
"""
