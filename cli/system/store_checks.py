"""Checks of the checkpoint store, and of the vector stores that the gateway reads and sinks write."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import partial

from kinstream.cli.system.finding import Finding, refusable
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.configuration.services import GatewaySpaceSettings
from kinstream.streams.configuration.vectors import SinkSettings
from kinstream.streams.errors import KinstreamError
from kinstream.streams.settings import Settings

_RIGHTS = "give this user the rights, or set checkpoints.url"


def checkpoint_store(settings: Settings) -> Finding:
    """Write, read and delete a file in the checkpoint store. A local folder that does not exist is not made."""
    name, data, shown = f"check-{secrets.token_hex(8)}", secrets.token_bytes(64), settings.checkpoints.shown
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
        # fsspec names the package that a kind of store needs.
        mend = "install it beside Kinstream" if isinstance(error.__cause__, ImportError) else _RIGHTS
        return Finding("checkpoints", False, str(error), mend)
    if not same:
        return Finding(
            "checkpoints", False, f"{shown}: a file was read back with other bytes", "use another store"
        )
    return Finding("checkpoints", True, f"{shown} can be written and read")


def _missing_folder(folder: str) -> Finding:
    above = os.path.dirname(folder)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK):
        return Finding("checkpoints", True, f"{folder} does not exist yet: the first worker creates it")
    return Finding("checkpoints", False, f"{folder} does not exist, and {above} cannot be written", _RIGHTS)


def vector_stores(settings: Settings) -> Iterator[Finding]:
    """Whether the stores of the gateway and of the sinks answer."""
    for name, space in settings.gateway.spaces.items():
        yield refusable(f"store of {name}", partial(_read, settings, space))
    for name, sink in settings.sinks.items():
        yield refusable(f"store of sink {name}", partial(_written, sink))


def _read(settings: Settings, space: GatewaySpaceSettings) -> str:
    from kinstream.search.gateway.service import place_of
    from kinstream.search.stores.kinds import create

    store = create(space.store, place_of(space, settings.gateway))
    try:
        features = store.check()
    finally:
        store.close()
    return f"{space.store} answers" + (f", with vectors of {features} features" if features else "")


def _written(sink: SinkSettings) -> str:
    from kinstream.search.vectors.sinks.kinds import create

    writer = create(sink)
    try:
        writer.check()
    finally:
        writer.close()
    return f"{sink.store} answers"
