"""Studies: the experiments behind a default or a claim of the docs, run by hand, and their notes."""
