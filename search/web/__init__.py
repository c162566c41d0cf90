"""The query agent over HTTP: requests, answers, routes, the process.

Only the command imports it.
"""
