"""Copies of the model files that a gate compares: they outlive the learner's checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from kinstream.search.models.model import Name, name_of
from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.names import file_name, open_files
from kinstream.streams.errors import BadRecord
from kinstream.streams.operations.models import data_of
from kinstream.streams.records.codec.codec import decode_model, encode
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import Settings

#: The folder beside the checkpoints of the agents.
FOLDER: Final = "gate-models"
#: A copy that no decision names is kept this long, for clicks that come back late.
KEEP_SECONDS: Final = 2 * 3600.0
#: Copies of the last models that have served are kept for good, in case that people roll back.
SERVED: Final = 4


class KeptModels:
    """The copies of one space and learner, in `gate-models/SPACE/LEARNER` of the checkpoint store.

    A copy is the model's data file, and a model record that points to it. Every service writes the same bytes under the
    same name, so services need not agree on who writes. All methods may wait for the store.

    Parameters
    ----------
    settings : the checkpoint store.
    clock : seconds since the epoch.
    """

    def __init__(
        self, settings: Settings, space: str, learner: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._files = open_files(settings.checkpoints.url, FOLDER, file_name(space), file_name(learner))
        self._clock = clock

    def keep(self, version: ModelVersion, serves: bool = False) -> None:
        """Copy the file of a model, unless it is copied.

        Parameters
        ----------
        serves : whether it serves by decision: the last ones that did are kept longer.

        Raises
        ------
        Missing : the file does not exist.
        CheckpointError : as `data_of`, or the store refuses the copy.
        """
        name = name_of(version)
        if serves:
            self._files.create(f"{name}.served", b"")
        if self.find(name) is not None:
            return
        data = data_of(version, self._settings)
        self._files.create(f"{name}.safetensors", data)
        # The record is last: a copy with a record is complete.
        record = replace(version, location=f"{self._files.url}/{name}.safetensors")
        self._files.create(f"{name}.model", encode(record))

    def find(self, name: Name) -> ModelVersion | None:
        """The record of a model that points to its copy; None without a copy.

        Raises
        ------
        CheckpointError : the store fails, or the record is damaged.
        """
        try:
            return decode_model(self._files.read(f"{name}.model"))
        except FileNotFoundError:
            return None
        except BadRecord as error:
            raise Damaged(f"{self._files.url}/{name}.model: {error}") from error

    def prune(self, needed: Collection[Name]) -> None:
        """Delete copies that are older than `KEEP_SECONDS`, except those of `needed`.

        Raises
        ------
        CheckpointError : the store fails.
        """
        before = self._clock() - KEEP_SECONDS
        names = list(self._files.sizes(""))
        served = [name.removesuffix(".served") for name in names if name.endswith(".served")]
        kept = {str(name) for name in needed} | set(sorted(served, key=_rank)[-SERVED:])
        old = [name for name in names if name.rpartition(".")[0] not in kept and self._older(name, before)]
        # Records first: a reader who misses a file finds that its record is gone as well.
        self._files.delete(sorted(old, key=lambda name: (not name.endswith(".model"), name)))
        self._files.sweep("")

    def _older(self, name: str, before: float) -> bool:
        try:
            return self._files.modified(name) < before
        except FileNotFoundError:
            return False


def _rank(name: str) -> tuple[int, ...]:
    """The order of the names of models, from the names of their files."""
    return tuple(int(part) for part in name.split(".") if part.isdigit())
