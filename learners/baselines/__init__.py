"""What online learners are measured against: Euclidean distance, and batch algorithms that are fitted again now and
then to the latest constraints. Nothing online is learned here.
"""
