"""The parts of the papers' experiments: protocol, data sets by name, feeds, splitters, published figures and the
comparison with them.
"""
