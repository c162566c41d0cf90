"""The portfolio: several learners beside untrained baselines, and one metric weighted towards the best of them.

It makes its members by name.
"""
