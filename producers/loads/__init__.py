"""A load of any kind of event: rows cut into blocks, its name, its confirmed progress, its pace, and the sending of
it. It knows no file format and no kind of event.
"""
