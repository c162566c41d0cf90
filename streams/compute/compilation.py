"""The one way in which kernels are compiled."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, update_wrapper, wraps
from pathlib import Path
from threading import RLock
from typing import Any, Final, ParamSpec, TypeVar, cast
from uuid import uuid4

import numpy as np

from kinstream.streams.compute.compile_lock import CompileLock
from kinstream.streams.extras import installed, missing

P = ParamSpec("P")
R = TypeVar("R")
_log: Final = logging.getLogger("kinstream.kernels")
_PROCESS: Final = uuid4().hex[:12]
#: The folder of the package, and its name.
_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = __name__.partition(".")[0]
#: A statement that imports. Parsing the files would take a tenth of a worker's start.
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE
)
_NAME: Final = re.compile(r"(?:^|[(,])\s*([\w.]+)")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, and run without the interpreter lock.

    No fastmath and no parallel reductions: both would let results depend on more than the input. The machine code on
    disk is used until the kernel's file changes, or a file that it uses. Those are imported files that are beside it or
    hold kernels themselves, and the files that these use.

    Copy arrays in a loop: for `into[i] = row` numba compiles the text of an error first, which takes three seconds in
    each process that compiles.
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


class _Kernel:
    """A kernel before the first call of any. Importing numba takes half a second, and most commands only construct
    learners and builders, to check their settings.

    The first call makes all kernels numba's, also where they were imported to: numba compiles calls of its own kernels
    only.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self.options = options
        self._dispatcher: Any = None

    def dispatcher(self) -> Any:
        """numba's, the same one at each call."""
        if self._dispatcher is None:
            self._dispatcher = _dispatcher(self.function, self.options)
        return self._dispatcher

    def __call__(self, *args: Any, **settings: Any) -> Any:
        if not _loaded:
            _load()
        return self.dispatcher()(*args, **settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _load()
        return getattr(self.dispatcher(), name)


_lock: Final = RLock()
_waiting: list[_Kernel] = []
_loaded = False


def _load() -> None:
    """Make all kernels numba's; those that are imported later are from the start."""
    global _loaded
    with _lock:
        if _loaded:
            return
        spaces = [kernel.function.__globals__ for kernel in _waiting]
        spaces += [
            vars(module) for name, module in list(sys.modules.items()) if name.split(".")[0] == _PACKAGE
        ]
        for space in spaces:
            for name, value in list(space.items()):
                if isinstance(value, _Kernel):
                    space[name] = value.dispatcher()
        for cell in (cell for kernel in _waiting for cell in kernel.function.__closure__ or ()):
            if isinstance(cell.cell_contents, _Kernel):
                cell.cell_contents = cell.cell_contents.dispatcher()
        _waiting.clear()
        _loaded = True


def _kept(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    if not installed("numba"):
        # Using a model's map needs no kernel; learning does.
        return _uncompiled(function)
    with _lock:
        if _loaded:
            return cast("Callable[P, R]", _dispatcher(function, options))
        _waiting.append(_Kernel(function, options))
        return cast("Callable[P, R]", _waiting[-1])


@cache
def _numba() -> Any:
    """numba, which imports scipy.linalg to see that it is there: 11 MB and a fifth of a process's start. Kernels that
    need it import it when they run, and are refused without it when they are compiled."""
    import numba  # type: ignore[import-untyped, unused-ignore]
    import numba.np.linalg as checked  # type: ignore[import-untyped, unused-ignore]

    check = getattr(checked, "ensure_blas", None)
    if check is not None and installed("scipy"):
        checked.ensure_blas = lambda: None
        try:
            import numba.np.arraymath  # type: ignore[import-untyped, unused-ignore]
        finally:
            checked.ensure_blas = check
    return numba


def _dispatcher(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    numba = _numba()
    if numba.config.DISABLE_JIT:
        # As compiled code: whole numbers wrap, and a division by zero is not reported.
        return np.errstate(all="ignore")(function)
    try:
        dispatcher: Any = numba.njit(**options)(function)
    except RuntimeError:
        # Neither this package nor the user's folder of caches can be written.
        _tell_not_kept()
        return numba.njit(**{**options, "cache": False})(function)
    kept = dispatcher._cache._cache_file
    # numba itself checks the function's own file only.
    kept._source_stamp = _stamp(Path(function.__code__.co_filename))
    # numba also numbers the files of machine code. A file that another process is about to write would be read in its
    # old version, and two processes that compile for different types would take the same number.
    kept._data_name_pattern = kept._data_name_pattern.replace("{number", f"{_PROCESS}.{{number")
    _compile_once(dispatcher, CompileLock(Path(kept._index_path).with_suffix(".lock")))
    return dispatcher


def _compile_once(dispatcher: Any, lock: CompileLock) -> None:
    """Let one process compile what no file holds yet. Kernels call each other in one direction, so no two processes
    wait for each other."""
    from numba.core.compiler_lock import (  # type: ignore[import-untyped, unused-ignore]
        global_compiler_lock,
    )

    kept, compile_for = dispatcher._cache, dispatcher.compile
    load, save = kept.load_overload, kept.save_overload
    depth = 0

    def loaded(signature: Any, target: Any) -> Any:
        found = read(signature, target, begin_anew=False)
        if found is None and lock.acquire():
            # Another process may have compiled it in the meantime.
            found = read(signature, target, begin_anew=True)
        return found

    def read(signature: Any, target: Any, *, begin_anew: bool) -> Any:
        """None for files that are damaged, in any way, or of another user: what they hold is compiled again."""
        try:
            return load(signature, target)
        except MemoryError:
            # Compiling takes more than that.
            raise
        except Exception as error:
            if begin_anew:
                _log.warning("%s: machine code cannot be read, and is compiled again: %r", lock.path, error)
                with suppress(OSError):
                    kept._cache_file.flush()
            return None

    def saved(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        # The folder is full, or its files can neither be read nor replaced.
        except Exception:
            _tell_not_kept()

    def compiled_once(signature: Any) -> Any:
        nonlocal depth
        with global_compiler_lock:
            depth += 1
            try:
                return compile_for(signature)
            finally:
                depth -= 1
                if depth == 0:
                    lock.release()

    kept.load_overload, kept.save_overload, dispatcher.compile = loaded, saved, compiled_once


@cache
def _tell_not_kept() -> None:
    _log.warning(
        "machine code cannot be kept, and every process compiles the kernels: set NUMBA_CACHE_DIR to a folder that "
        "can be written and is not full"
    )


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
        for package, some in _IMPORT.findall(re.sub("#.*", "", source.read_text(encoding="utf-8"))):
            if package:
                yield package
            yield from (f"{package}.{name}".removeprefix(".") for name in _NAME.findall(some))

    return tuple(names())
