"""The query agent over HTTP: requests, answers, refusals, connections, the process.

Only the command imports it.
"""
