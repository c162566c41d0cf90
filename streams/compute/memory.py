"""How much memory this process may use: the least of its limits and of the machine's memory.

Libraries that get no memory panic, abort or hang, so memory for large values is asked for before they are called.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from kinstream.streams.errors import BadRecord, Reason

#: What one space may take of the memory: its state is copied, and encoded, for a checkpoint.
SHARE: Final = 4
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")
#: Files with the limit of a group, of both versions.
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes", "memory.limit_in_bytes")
#: Sizes below this are taken without a question.
LARGE: Final = 2**20


class _Limit(NamedTuple):
    """A limit in bytes, and the column of /proc/self/statm with the pages that count towards it."""

    size: int
    column: int


_ADDRESSES: Final = 0
_RESIDENT: Final = 1
_DATA: Final = 5


@cache
def memory_limit() -> int:
    """Bytes."""
    return min(limit.size for limit in _limits())


def memory_left() -> int:
    """Bytes that this process may still take: of each limit, less what it has taken."""
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        taken = [page * int(text) for text in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    except OSError:
        return memory_limit()
    return max(0, min(limit.size - taken[limit.column] for limit in _limits()))


def ask(size: int) -> None:
    """Ask for memory that a library is about to take.

    Raises
    ------
    MemoryError : there is not so much; the text says how much is wanted and how much there is.
    """
    if size < LARGE:
        return
    left = memory_left()
    if size > left:
        raise MemoryError(
            f"{written(size)} of memory are wanted, and this process may take {written(left)} more"
        )


def check_space(name: str, what: str, needed: int, most: int | None) -> None:
    """Refuse a record with which a space would take more than it may.

    Parameters
    ----------
    what : takes the memory, for the message.
    most : bytes; None for no limit.

    Raises
    ------
    BadRecord : it would.
    """
    if most is not None and needed > most:
        raise BadRecord(
            Reason.TOO_LARGE,
            f"space {name!r}: {what} about {written(needed)}, and a space may take {written(most)}: the least of "
            "worker.max_resident_bytes and a quarter of the memory of this worker",
        )


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


def _limits() -> Iterator[_Limit]:
    yield _Limit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _RESIDENT)
    for kind, column in ((resource.RLIMIT_AS, _ADDRESSES), (resource.RLIMIT_DATA, _DATA)):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            yield _Limit(soft, column)
    for folder in _groups():
        for name in _LIMITS:
            try:
                yield _Limit(int((folder / name).read_text(encoding="ascii")), _RESIDENT)
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
