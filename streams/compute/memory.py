"""How much memory this process may use: the least of its limits and of the machine's memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

#: What one space may take of the memory: its state is copied, and encoded, for a checkpoint.
SHARE: Final = 4
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")
#: Files with the limit of a group, of both versions.
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes", "memory.limit_in_bytes")


@cache
def memory_limit() -> int:
    """Bytes."""
    return min(_limits())


def most_of_a_space(resident: int) -> int:
    """Bytes that one space may take.

    Parameters
    ----------
    resident : bytes that the spaces of a partition may take together.
    """
    return min(resident, memory_limit() // SHARE)


def written(size: float) -> str:
    """A number of bytes for readers."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _limits() -> Iterator[int]:
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            yield soft
    for folder in _groups():
        for name in _LIMITS:
            try:
                yield int((folder / name).read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue  # there is no such file, or "max" in it


def _groups() -> Iterator[Path]:
    """The folders of the process's control group and of those above it; a container sees its own as the top."""
    yield _GROUPS
    try:
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        path = Path(line.rpartition(":")[2].lstrip("/"))
        for part in (path, *path.parents):
            yield _GROUPS / part
            yield _GROUPS / "memory" / part
