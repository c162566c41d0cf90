"""The loops of the learners of several modalities, and their shared parts."""
