"""Parts of several learners: scalers, checks, judging by events, the state of one modality and of several. It holds no
algorithm; code that only one learner needs stays with that learner.
"""
