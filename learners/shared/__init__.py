"""What several learners are made of: scalers, checks, judging by events, the state of one modality and of several. No
algorithm is here; what only one learner needs stays with that learner.
"""
