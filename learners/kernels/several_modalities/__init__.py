"""The loops of the learners of several modalities, and what only these share."""
