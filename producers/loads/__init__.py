"""A load of any kind of event: rows cut into blocks, its name, its confirmed progress, its pace, and the sending of
it. It does not depend on file formats or kinds of events.
"""
