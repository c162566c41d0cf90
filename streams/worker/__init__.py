"""The process that runs one agent as a member of its group: its life, its partitions, the faust app and transport, and
the watchdogs. All modules that import faust are here.
"""
