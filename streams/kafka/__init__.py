"""Clients of the brokers: login, permissions, the contents of the cluster, reading a range, and the gapless producer.
It does not depend on faust, checkpoints or agents.
"""
