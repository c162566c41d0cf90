"""The confirmed progress of a load, kept in a small file so that a restart continues from it.

No guarantee depends on the file: without it a load sends everything again, and builders drop the sequences that they
already have. The file saves that work, and it detects changed settings, under which equal sequences would be other
rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kinstream.producers.loads.blocks import BEGINNING, Position
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.errors import CheckpointError, SettingsError

FOLDER: Final = Path(".kinstream/loads")
_FORMAT: Final = 1
#: Largest progress file; ours have a few kilobytes.
_MAX_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The confirmed part of a load.

    Parameters
    ----------
    shaping : of the load, see `kinstream.producers.labelled.load.LabelledLoad.shaping`.
    log : the topic and cluster that hold it.
    sequence, position : of the first block that is not confirmed.
    rows : confirmed so far.
    complete : whether nothing is left to send.
    """

    load_id: str
    shaping: Mapping[str, Any]
    log: Mapping[str, str | None]
    sequence: int = 0
    position: Position = BEGINNING
    rows: int = 0
    complete: bool = False

    def at(self, sequence: int, position: Position, rows: int, *, complete: bool = False) -> LoadProgress:
        """The same load with more progress."""
        return replace(self, sequence=sequence, position=position, rows=rows, complete=complete)


class ProgressFolder:
    """One file for each load.

    Parameters
    ----------
    log : topic, its id, and the cluster's id, as far as they are known. Progress in another log is ignored.
    """

    def __init__(self, folder: Path, log: Mapping[str, str | None]) -> None:
        self._folder = folder
        self._files = LocalFiles(str(folder))
        self._log = dict(log)

    def begin(self, load_id: str, shaping: Mapping[str, Any], *, named: bool = False) -> LoadProgress:
        """Where the load continues.

        Parameters
        ----------
        named : the user has given this load its id, and may have begun another of the same rows.

        Raises
        ------
        SettingsError : the load was begun with other settings, or another of the same rows is not finished.
        """
        self._files.sweep("")
        mine = self._read(self._path(load_id))
        if mine is not None and self._same_log(mine):
            self._compare(mine, shaping)
            return mine
        if not named:
            self._refuse_unfinished(load_id, shaping)
        return LoadProgress(load_id, shaping, self._log)

    def write(self, progress: LoadProgress) -> None:
        """Replace the file, durably.

        Raises
        ------
        SettingsError : the folder cannot be written to.
        """
        path = self._path(progress.load_id)
        content = {name: getattr(progress, name) for name in LoadProgress.__dataclass_fields__} | {
            "format": _FORMAT
        }
        text = json.dumps(content, indent=1, default=dict)
        try:
            self._files.write([(path.name, text.encode())])
        except CheckpointError as error:
            cause = getattr(error.__cause__, "strerror", None) or error
            raise SettingsError(
                f"{path}: progress cannot be written: {cause}; see --progress-folder"
            ) from error

    def _path(self, load_id: str) -> Path:
        return self._folder / f"{load_id}.json"

    def _read(self, path: Path) -> LoadProgress | None:
        try:
            with path.open("rb") as stream:
                text = stream.read(_MAX_BYTES + 1)
            if len(text) > _MAX_BYTES:
                raise ValueError(f"larger than {_MAX_BYTES} bytes")
            content = json.loads(text)
            if content.pop("format") != _FORMAT:
                raise ValueError("another format")
            return LoadProgress(**{**content, "position": Position(*content["position"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SettingsError(
                f"{path}: this progress file cannot be read ({error}); delete it to send the load again from "
                "its start; builders drop what they already have"
            ) from error

    def _same_log(self, progress: LoadProgress) -> bool:
        """Whether the known facts of both logs agree."""
        return all(
            value is None or progress.log.get(name) in (None, value) for name, value in self._log.items()
        )

    def _compare(self, progress: LoadProgress, shaping: Mapping[str, Any]) -> None:
        names = sorted(progress.shaping.keys() | shaping.keys())
        changed = [name for name in names if progress.shaping.get(name) != shaping.get(name)]
        if changed:
            changes = "; ".join(
                f"{name} was {_shown(progress.shaping.get(name))} and is {_shown(shaping.get(name))}"
                for name in changed
            )
            raise SettingsError(
                f"load {progress.load_id} was begun with other settings: {changes}. Use the old ones, or begin "
                "another one with --load-id"
            )

    def _refuse_unfinished(self, load_id: str, shaping: Mapping[str, Any]) -> None:
        """Changed settings give another digest: the first load would stay incomplete, and its rows would count
        twice."""
        for path in sorted(self._folder.glob("*.json")):
            other = self._read(path)
            if other is None or other.complete or not self._same_log(other) or other.load_id == load_id:
                continue
            if all(other.shaping.get(name) == shaping.get(name) for name in ("rows", "space")):
                self._compare(other, shaping)


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
