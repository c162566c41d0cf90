"""The learner of click lists: a map of queries, and weights of everything that is known of a query and an item."""
