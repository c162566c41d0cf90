"""Makes `one_blas_thread` find scipy's BLAS, which runs the matrix products of compiled code.

Kernels with such products import this module for this effect.
"""

from __future__ import annotations

from ctypes import CDLL
from importlib.machinery import PathFinder

from kinstream.streams.compute.blas_threads import find_libraries
from kinstream.streams.extras import installed

if installed("scipy"):
    # Without it, nothing is compiled.
    import scipy

    # Importing scipy.linalg would load a hundred modules in every process; its library is enough.
    _found = PathFinder.find_spec("cython_blas", [f"{folder}/linalg" for folder in scipy.__path__])
    assert _found is not None
    assert _found.origin is not None
    CDLL(_found.origin)

    find_libraries()
