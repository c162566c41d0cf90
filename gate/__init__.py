"""The gate: which model serves a space is decided on the clicks of drafted lists, and written to the log."""
