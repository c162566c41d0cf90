"""The query agent over HTTP: requests, answers, refusals, connections, the process.

Nothing imports it but the command.
"""
