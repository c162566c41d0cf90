"""Values in the records of sources: their formats, paths to them, and what each field accepts."""
