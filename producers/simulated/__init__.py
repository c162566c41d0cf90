"""Simulated result lists and clicks over labelled rows: the users' models, the simulator, its settings, and the load
of catalogue and lists.
"""
