"""Indexes of the items of a space under one version of a metric, and the engine that joins the two.

It does not depend on Kafka, HTTP or threads that follow a topic.
"""
