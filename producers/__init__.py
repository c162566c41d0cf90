"""Sources of events and loads that send them: labelled rows, catalogues, result lists, relations, simulated clicks.

A source has two operations: the next batch of rows, and a snapshot of its position. A load turns it into a fixed
sequence of blocks, and `kinstream.producers.loads.sender.produce` sends them.
"""
