"""Finished cells on disk, so that an interrupted experiment can continue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kinstream.evaluation.runner.cells import Done
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.errors import CheckpointError, SettingsError

CELLS: Final = "cells"


def canonical(value: Any) -> str:
    """JSON in one form for one value: sorted names, floats in full, no NaN.

    Raises
    ------
    ValueError : a number is not finite.
    """
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


class Store:
    """One file for each finished cell, named by a digest of everything that it depends on.

    Parameters
    ----------
    folder : created if it is missing.

    Raises
    ------
    SettingsError : it cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = LocalFiles(str(folder))
        self._cells = folder / CELLS
        try:
            self._cells.mkdir(parents=True, exist_ok=True)
            for name in ("", CELLS):
                self._files.sweep(name)
        except OSError as error:
            raise SettingsError(f"{folder}: {error.strerror}") from error

    def find(self, key: str) -> Done | None:
        """A finished cell. An incomplete one, after a crash of the machine, counts as not finished."""
        try:
            found: Mapping[str, Any] = json.loads((self._cells / f"{key}.json").read_text(encoding="utf-8"))
            return Done(dict(found["result"]), dict(found["times"]))
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def keep(self, key: str, done: Done) -> None:
        """Write a cell: it is written completely or not at all."""
        self.write(f"{CELLS}/{key}.json", canonical({"result": done.result, "times": done.times}))

    def write(self, name: str, text: str) -> Path:
        """Write or replace a file of the folder.

        Raises
        ------
        SettingsError : it cannot be written.
        """
        path = self.folder / name
        try:
            self._files.write([(name, text.encode())])
        except CheckpointError as error:
            raise SettingsError(f"{path}: {getattr(error.__cause__, 'strerror', None) or error}") from error
        return path
