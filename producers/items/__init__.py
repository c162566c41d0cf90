"""The catalogue: features and categories of items, tombstones, and the source that reads them."""
