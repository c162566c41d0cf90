"""Durable files in any store, states as bytes, and the manifest that makes them a checkpoint.

It does not depend on Kafka or on agents.
"""
