"""The service over HTTP: requests, answers, routes, refusals, connections, limits, metrics, the process.

Only the command imports it.
"""
