"""The quality of a metric on rows or constraints that it has not learned from: the measures, their names, and held-out
rows. It runs no plan and draws no charts.
"""
