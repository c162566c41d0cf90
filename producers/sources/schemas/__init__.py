"""Avro schemas of sources: where they come from, and how much a record of one may hold."""
