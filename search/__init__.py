"""Models in use: services follow them, and search with them while they change."""
