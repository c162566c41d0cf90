"""What any long-running process of ours needs: its supervisor, sockets that are handed to it, and its log.

It knows no agent.
"""
