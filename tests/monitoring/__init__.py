"""The metrics agent."""
