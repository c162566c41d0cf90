"""One space that can be searched: its catalogue from `kinstream.events`, its searcher, the sampled recall.

HTTP stays out.
"""
