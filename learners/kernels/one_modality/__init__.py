"""The loops of the learners of one modality, a file for each algorithm and one more for its blocked form."""
