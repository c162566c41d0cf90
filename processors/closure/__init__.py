"""The builder of transitive closure: the graph with its compiled loops, seeds and where they come from, labels, and
chains that explain. It may import the clicks, whose co-clicks it takes as relations.
"""
