"""Removes from a virtual environment what no role of the image uses.

python3 trim.py SITE_PACKAGES
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

#: Sources and headers for compilers; the image has none.
SUFFIXES: Final = frozenset(
    (".pyi", ".pyx", ".pxd", ".pxi", ".tp", ".h", ".hpp", ".c", ".cpp", ".cc", ".cuh", ".a", ".lib")
)
#: Tests of the packages themselves.
FOLDERS: Final = frozenset(("tests", "__pycache__"))
#: pyarrow's parts for RPC, for object stores (checkpoints take fsspec's) and for encrypted files, and second copies of
#: libraries that a wheel has instead of links. Nothing that Kinstream imports is linked to them. Then numpy's test of
#: processor features, and scipy's reader of Matrix Market files.
PATTERNS: Final = (
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/libarrow_flight.so*",
    "pyarrow/libarrow_python_flight.so*",
    "pyarrow/libarrow_s3.so*",
    "pyarrow/libarrow_python_parquet_encryption.so*",
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*",
    "pyarrow/_flight.*",
    "pyarrow/_s3fs.*",
    "pyarrow/_azurefs.*",
    "pyarrow/_gcsfs.*",
    "pyarrow/_hdfs.*",
    "pyarrow/_parquet_encryption.*",
    "pyarrow/_dataset_parquet_encryption.*",
    "pyarrow/_pyarrow_cpp_tests.*",
    "numpy/_core/_simd.*",
    "scipy/io/_fast_matrix_market/_fmm_core.*",
)


def trim(site_packages: Path) -> None:
    for pattern in PATTERNS:
        for path in site_packages.glob(pattern):
            remove(path)
    for folder, folders, files in os.walk(site_packages):
        for name in FOLDERS.intersection(folders):
            remove(Path(folder, name))
            folders.remove(name)
        for name in files:
            if Path(name).suffix in SUFFIXES:
                Path(folder, name).unlink()
    strip(site_packages)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def strip(site_packages: Path) -> None:
    """Remove the symbols that only a debugger and a linker read.

    Libraries in a folder NAME.libs were rewritten when their wheel was made: `strip` breaks them.
    """
    libraries = [
        path
        for path in sorted(site_packages.rglob("*.so*"))
        if path.is_file()
        and not path.is_symlink()
        and not path.relative_to(site_packages).parts[0].endswith(".libs")
    ]
    subprocess.run(["strip", "--strip-unneeded", *map(str, libraries)], check=True)


if __name__ == "__main__":
    trim(Path(sys.argv[1]))
