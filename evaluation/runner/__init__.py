"""The run of a plan: cells, parallel processes, finished cells on disk, and the result with its means and tests."""
