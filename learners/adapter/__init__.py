"""The adapter: a map of queries over embeddings that stay as they are."""
