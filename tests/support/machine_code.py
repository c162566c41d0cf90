"""Compiled kernels of this checkout for another installation of it: to compile them again takes minutes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import kinstream


def take_machine_code(package: Path) -> None:
    """Give an installed package the compiled kernels of each file that it has as this checkout has it.

    numba uses them where all files that a kernel depends on are the same, and compiles the others.
    """
    ours = Path(kinstream.__file__).parent
    for source in package.rglob("*.py"):
        beside = ours / source.relative_to(package)
        if not beside.exists() or source.read_bytes() != beside.read_bytes():
            continue
        times = beside.stat()
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        for code in (beside.parent / "__pycache__").glob(f"{source.stem}.*.nb[ci]"):
            (source.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy2(code, source.parent / "__pycache__")
