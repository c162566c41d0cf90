"""Makes `one_blas_thread` know scipy's BLAS, in which the matrix products of compiled code run.

Kernels with such products import this module for that effect.
"""

from __future__ import annotations

from kinstream.streams.compute.blas_threads import find_libraries
from kinstream.streams.extras import installed

if installed("scipy"):
    # Without it nothing is compiled.
    import scipy.linalg.cython_blas  # noqa: F401

    find_libraries()
