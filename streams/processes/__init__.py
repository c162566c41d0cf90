"""Parts of every long-running process: its supervisor, inherited sockets, and its log.

It does not depend on agents.
"""
