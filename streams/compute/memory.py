"""How much memory this process may use: the least of its limits and of the machine's memory.

Libraries that get no memory panic, abort or hang, so memory for large values is asked for before they are called.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from functools import cache, partial
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

#: Columns of /proc/self/statm.
_ADDRESSES: Final = 0
_RESIDENT: Final = 1
_DATA: Final = 5
#: Files with what the processes of a group have taken, of both versions, and what memory of files is called in its
#: statistics, which the kernel takes back when it needs it.
_USAGES: Final = ("memory.current", "memory.usage_in_bytes")
_FILES: Final = frozenset({"inactive_file", "active_file"})
#: Memory is scarce if less than this share of it is left: a checkpoint makes copies of a space.
_SCARCE: Final = 3 / 8
#: What is worth a checkpoint for giving it back, as a share of the memory.
_WORTH: Final = 1 / 16
#: Least and longest time between looks at it, and bytes that are taken in a second at most.
_LOOK_SECONDS: Final = 0.01
_LONGEST_SECONDS: Final = 1.0
_SPEED: Final = 8 * 2**30


class _Limit(NamedTuple):
    """A limit in bytes, and what counts towards it now."""

    size: int
    taken: Callable[[], int]


@cache
def memory_limit() -> int:
    """Bytes."""
    return min(limit.size for limit in _limits())


def memory_left() -> int:
    """Bytes that this process may still take: of each limit, less what has been taken of it, also by others."""
    return max(0, min(limit.size - limit.taken() for limit in _limits()))


def memory_scarce() -> bool:
    """Whether what may be dropped should be."""
    return memory_left() < _SCARCE * memory_limit()


class Pressure:
    """Tells when memory has to be given back: it is scarce, and much was taken since it was last given back.

    Parameters
    ----------
    clock : monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock()
        self._left = memory_left()

    def felt(self) -> bool:
        """Whether it is so now. It is looked at when it may be so: a hundred times in a second if it is scarce."""
        now = self._clock()
        if now < self._next:
            return False
        left, limit = memory_left(), memory_limit()
        spare = left - _SCARCE * limit
        self._next = now + min(max(spare / _SPEED, _LOOK_SECONDS), _LONGEST_SECONDS)
        return spare < 0 and self._left - left >= _WORTH * limit

    def relieved(self) -> None:
        """Note that what could be given back has been."""
        self._left = memory_left()


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
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield _Limit(machine, partial(_taken_of_the_machine, machine))
    for kind, column in ((resource.RLIMIT_AS, _ADDRESSES), (resource.RLIMIT_DATA, _DATA)):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            yield _Limit(soft, partial(_own, column))
    yield from _limits_of_groups(machine)


@cache
def _limits_of_groups(machine: int) -> tuple[_Limit, ...]:
    """Those below the memory of the machine."""
    found = []
    for folder in dict.fromkeys(_groups()):
        for name in _LIMITS:
            try:
                size = int((folder / name).read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue  # there is no such file, or "max" in it
            if size < machine:
                found.append(_Limit(size, partial(_taken_of_the_group, (folder / name).parent)))
    return tuple(found)


def _own(column: int) -> int:
    """Bytes of this process, by a column of its statistics."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[column]
    except OSError:
        return 0
    return os.sysconf("SC_PAGE_SIZE") * int(pages)


def _taken_of_the_machine(size: int) -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return size - next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return _own(_RESIDENT)


def _taken_of_the_group(folder: Path) -> int:
    """Bytes of all processes of a group, less what the kernel would take back."""
    for name in _USAGES:
        try:
            usage = int((folder / name).read_text(encoding="ascii"))
            pairs = (
                line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            )
            counts = {name.removeprefix("total_"): int(size) for name, size in pairs}
        except (OSError, ValueError):
            continue
        return max(0, usage - sum(counts.get(name, 0) for name in _FILES))
    return _own(_RESIDENT)


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
