"""More partitions for the topics: the checks, the states of every agent by their new place, and the change itself."""
