"""The query agent without HTTP: its spaces, kept up to date, and its metrics."""
