"""Steps on a matrix that several kernels take: rank-one changes, projections, eigenpairs, bilinear forms.

No algorithm is here.
"""
