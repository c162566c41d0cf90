"""Makes `one_blas_thread` find scipy's BLAS, which runs the matrix products of compiled code.

Kernels with such products import this module for this effect.
"""

from __future__ import annotations

from kinstream.streams.compute.blas_threads import find_libraries
from kinstream.streams.extras import installed

if installed("scipy"):
    # Without it, nothing is compiled.
    import scipy.linalg.cython_blas  # noqa: F401

    find_libraries()
