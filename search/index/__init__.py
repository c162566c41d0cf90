"""Indexes of the items of a space under one version of a metric, and the engine that joins the two.

Kafka, HTTP and threads that follow a topic stay out.
"""
