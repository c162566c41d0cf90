"""What every long-running process needs: its supervisor, inherited sockets, and its log.

It does not depend on agents.
"""
