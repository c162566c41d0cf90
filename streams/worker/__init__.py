"""The process that runs one agent as a member of its group: its life, its partitions, the faust app and transport, the
watchdogs. All that imports faust lies here.
"""
