"""The one way in which kernels are compiled."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast
from uuid import uuid4

import numpy as np

from kinstream.streams.extras import installed, missing

P = ParamSpec("P")
R = TypeVar("R")
_PROCESS: Final = uuid4().hex[:12]
#: The folder of the package, and its name.
_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = __name__.partition(".")[0]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, and run without the interpreter lock.

    No fastmath and no parallel reductions: both would let results depend on more than the input. The machine code on
    disk is used until the kernel's file changes, or a file that it uses. Those are imported files that are beside it or
    hold kernels themselves, and the files that these use.
    """
    return _kept(function, nogil=True, cache=True, error_model="numpy")


def compiled_map(function: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for kernels that loading a model or using its map calls: without numba, the interpreter runs them,
    with the same result to rounding.
    """
    return compiled(function) if installed("numba") else function


def compiled_sum(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop that adds up numbers so that several are added at a time: twice to ten times as fast.

    The compiler orders the sum, once for each kernel and type of its arguments. The same numbers give the same bits in
    the same kernel on one kind of processor, but not in another kernel: a checkpoint must not hold such a result.
    """
    sums = {"reassoc", "contract"}
    return _kept(function, nogil=True, cache=True, error_model="numpy", fastmath=sums)


def _kept(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    if not installed("numba"):
        # Using a model's map needs no kernel; learning does.
        return _uncompiled(function)
    import numba  # type: ignore[import-untyped, unused-ignore]

    dispatcher: Any = numba.njit(**options)(function)
    kept = dispatcher._cache._cache_file
    # numba itself checks the function's own file only.
    kept._source_stamp = _stamp(Path(function.__code__.co_filename))
    # numba also numbers the files of machine code. A file that another process is about to write would be read in its
    # old version, and two processes that compile for different types would take the same number.
    kept._data_name_pattern = kept._data_name_pattern.replace("{number", f"{_PROCESS}.{{number")
    return cast("Callable[P, R]", dispatcher)


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel without numba: it raises PackageMissing when it is called."""

    @wraps(function)
    def refused(*_: P.args, **__: P.kwargs) -> R:
        raise missing("numba", f"the kernel {function.__module__}.{function.__name__}")

    return refused


def limit(dtype: np.dtype[Any]) -> float:
    """An entry below this magnitude is safely finite in the type."""
    return float(np.finfo(dtype).max) / 4.0


def sources(source: Path) -> list[Path]:
    """The files whose change makes a kernel's file compile again, sorted: itself, the files that it uses, and this
    one."""
    found = {_ROOT / "streams" / "compute" / Path(__file__).name}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _pieces(path)
    return sorted(found)


@cache
def _stamp(source: Path) -> tuple[tuple[str, float, int], ...]:
    """Names, times and sizes of the files that the machine code of a kernel's file depends on."""
    facts = ((f"{path.parent.name}/{path.name}", path.stat()) for path in sources(source))
    return tuple((name, fact.st_mtime, fact.st_size) for name, fact in facts)


@cache
def _pieces(source: Path) -> tuple[Path, ...]:
    """The files that a kernel's file imports and may use."""
    found = set()
    for module in _imported(source):
        *packages, name = module.split(".")
        beside = source.parent / f"{name}.py"
        there = _ROOT.joinpath(*packages[1:], f"{name}.py")
        if beside.exists():
            found.add(beside)
        elif packages[:1] == [_PACKAGE] and there.exists() and _holds_kernels(there):
            found.add(there)
    return tuple(found)


@cache
def _holds_kernels(source: Path) -> bool:
    return any(module in (__name__, f"{__name__}.compiled") for module in _imported(source))


@cache
def _imported(source: Path) -> tuple[str, ...]:
    """Dotted names of everything that a file imports: modules, and names that may be modules of a package."""

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                yield from (alias.name for alias in node.names)

    return tuple(names())
