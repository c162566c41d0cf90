"""The quality of a metric on rows or constraints that it has not learned from: the measures, their names, and held-out
rows. It knows no plan's run and draws nothing.
"""
