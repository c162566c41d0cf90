"""What services over HTTP share: requests, refusals, connections, limits, metrics, the process.

The query agent and the gateway are made of it. Only commands import it.
"""
