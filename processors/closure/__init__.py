"""The builder of transitive closure: the graph with its compiled loops, seeds and their origins, labels, and chains
that explain a relation. It may import the clicks, whose co-clicks it uses as relations.
"""
