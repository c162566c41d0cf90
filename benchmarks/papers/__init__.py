"""The experiments of the papers that the learners come from, and the figures that they print."""
