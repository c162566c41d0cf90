"""One searchable space: its catalogue from `kinstream.events`, its searcher, the sampled recall.

It does not depend on HTTP.
"""
