"""Durable files in any store, states as bytes, and the manifest that makes them a checkpoint.

It knows no Kafka and no agent.
"""
