"""Relations between two items, in files and in blocks."""
