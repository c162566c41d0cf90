"""The query agent without HTTP: its spaces, kept up to date, and what it shows Prometheus."""
