"""Online locality-sensitive hashing: nearest neighbours under a metric that is being learned."""
