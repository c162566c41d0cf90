"""Checks of the checkpoint store, and of the vector stores that the service reads and sinks write."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from kinstream.cli.system.check_result import Finding, refusable
from kinstream.streams.checkpoints.files import Files
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.checkpoints.temporary_files import PREFIX
from kinstream.streams.configuration.service import ServeSpaceSettings
from kinstream.streams.configuration.vectors import SinkSettings
from kinstream.streams.errors import KinstreamError
from kinstream.streams.settings import Settings

#: How many folders are named, the largest first.
_LARGEST: Final = 3
_RIGHTS = "give this user the rights, or set checkpoints.url"


def checkpoint_store(settings: Settings) -> Finding:
    """Write, read and delete a file in the checkpoint store. A local folder that does not exist is not made."""
    name, data, shown = f"check-{secrets.token_hex(8)}", secrets.token_bytes(64), settings.checkpoints.shown
    files: Files | None = None
    try:
        files = open_files(settings.checkpoints.url)
        if isinstance(files, LocalFiles) and not os.path.lexists(files.url):
            return _missing_folder(files.url)
        files.write([(name, data)])
        try:
            same = files.read(name) == data
        finally:
            files.delete([name])
    except (KinstreamError, FileNotFoundError) as error:
        cause = error.__cause__
        # fsspec names the package that a kind of store needs.
        mend = "install it beside Kinstream" if isinstance(cause, ImportError) else _RIGHTS
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            mend = "make room on its volume, or delete folders of generations that nobody needs"
        return Finding("checkpoints", False, f"{error}{_content(files)}", mend)
    if not same:
        return Finding(
            "checkpoints", False, f"{shown}: a file was read back with other bytes", "use another store"
        )
    return Finding("checkpoints", True, f"{shown} can be written and read{_content(files)}")


def _content(files: Files | None) -> str:
    """What fills a local store, as further lines; nothing of another one, which has no end."""
    if not isinstance(files, LocalFiles) or not os.path.isdir(files.url):
        return ""
    sizes: Counter[str] = Counter()
    unfinished = Counter[str]()
    for folder, _, names in os.walk(files.url):
        owner = "/".join(os.path.relpath(folder, files.url).split(os.sep)[:2])
        for name in names:
            with suppress(OSError):
                size = os.lstat(os.path.join(folder, name)).st_size
                sizes[owner] += size
                if name.startswith(PREFIX):
                    unfinished.update(files=1, bytes=size)
    lines = [f"{_mib(shutil.disk_usage(files.url).free)} are free on its volume"]
    lines += [f"{_mib(size)} in {owner}" for owner, size in sizes.most_common(_LARGEST) if size]
    if unfinished:
        lines.append(
            f"{_mib(unfinished['bytes'])} of all are {unfinished['files']} temporary files: a worker that starts "
            "deletes those of killed ones"
        )
    return "".join(f"\n{line}" for line in lines)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _missing_folder(folder: str) -> Finding:
    above = os.path.dirname(folder)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK):
        return Finding("checkpoints", True, f"{folder} does not exist yet: the first worker creates it")
    return Finding("checkpoints", False, f"{folder} does not exist, and {above} cannot be written", _RIGHTS)


def vector_stores(settings: Settings) -> Iterator[Finding]:
    """Whether the stores of spaces and of the sinks answer."""
    for name, space in settings.serve.stored.items():
        yield refusable(f"store of {name}", partial(_read, settings, space))
    for name, sink in settings.sinks.items():
        yield refusable(f"store of sink {name}", partial(_written, sink))


def _read(settings: Settings, space: ServeSpaceSettings) -> str:
    from kinstream.search.backends.store import place_of
    from kinstream.search.stores.kinds import create

    store = create(space.backend, place_of(space, settings.serve))
    try:
        features = store.check()
    finally:
        store.close()
    return f"{space.backend} answers" + (f", with vectors of {features} features" if features else "")


def _written(sink: SinkSettings) -> str:
    from kinstream.vectors.sinks.kinds import create

    writer = create(sink)
    try:
        writer.check()
    finally:
        writer.close()
    return f"{sink.store} answers"
