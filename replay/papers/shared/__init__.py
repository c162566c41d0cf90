"""What experiments of papers are made of: protocol, data sets by name, feeds, splitters, published figures and the
comparison with them.
"""
