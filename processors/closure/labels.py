"""Labelled items as relations: similar to the first item of their class, classes dissimilar from each other."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from kinstream.processors.base.builder import State
from kinstream.processors.closure import seed_log
from kinstream.processors.closure.paths import seed_text
from kinstream.processors.closure.seeding import SeedBatch, Seeding, grouped, short
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import SampleBlock

_WORDS: Final[dict[type[int | str] | None, str]] = {int: "integer", str: "string", None: ""}


class Labels:
    """The classes of a space.

    Parameters
    ----------
    max_classes : number of classes made dissimilar from each other; later classes only give similar pairs.
    """

    def __init__(self, seeding: Seeding, max_classes: int) -> None:
        self._seeding = seeding
        self._max_classes = max_classes
        # Classes by first appearance, and the first item of each.
        self._classes: dict[int | str, int] = {}
        self._kind: type[int | str] | None = None

    def checked(self, block: SampleBlock) -> list[Any]:
        """The labels of a block.

        Raises
        ------
        BadRecord : of another type than those of the space.
        """
        if isinstance(block.labels, np.ndarray):
            if not np.can_cast(block.labels.dtype, np.int64):
                raise BadRecord(Reason.WRONG_LABEL_TYPE, f"labels of type {block.labels.dtype}")
            labels: list[Any] = block.labels.tolist()
            kind: type[int | str] = int
        else:
            labels, kind = list(block.labels), str
        if self._kind not in (None, kind):
            raise BadRecord(
                Reason.WRONG_LABEL_TYPE, f"{_WORDS[kind]} labels in a space of {_WORDS[self._kind]} ones"
            )
        return labels

    def take(
        self, block: SampleBlock, offset: int, rows: list[int], labels: list[Any], items: list[int]
    ) -> list[BadRecord]:
        """Relations of labelled items: to the first item of the class, and from that one to the first items of other
        classes."""
        self._kind = int if isinstance(block.labels, np.ndarray) else str
        refused: list[BadRecord] = []
        waiting: list[tuple[int, int, int, int, int]] = []
        for row, item in zip(rows, items, strict=True):
            first = self._classes.get(labels[row])
            if first == item:
                self._seeding.counts["known"] += 1
            elif first is not None:
                waiting.append((first, item, 1, row, 0))
            else:
                refused += self._take_labels(block, offset, waiting)
                waiting = []
                error = self._new_class(labels[row], row, item, waiting, offset, block.time_ms)
                if error is not None:
                    refused.append(error)
        refused += self._take_labels(block, offset, waiting)
        return grouped(refused)

    def _new_class(
        self,
        label: int | str,
        row: int,
        item: int,
        waiting: list[tuple[int, int, int, int, int]],
        offset: int,
        time_ms: int,
    ) -> BadRecord | None:
        others = np.fromiter(self._classes.values(), np.int32, len(self._classes))
        same = self._seeding.graph.first_similar(item, others)
        if same >= 0:
            self._seeding.counts["contradiction"] += 1
            name, other = short(self._seeding.items.name(item)), list(self._classes)[same]
            against = "it is the first item of that class"
            if item != others[same]:
                against = self._seeding.against(item, int(others[same]), -1)
            where = seed_text(seed_log.VIA[seed_log.LABEL], offset, row, time_ms, None)
            detail = f"item {name} is labelled {label!r} ({where}) but belongs to class {other!r}: {against}"
            return BadRecord(Reason.CONTRADICTION, detail, (row,))
        if len(self._classes) < self._max_classes:
            waiting += [(item, int(other), -1, row, part) for part, other in enumerate(others)]
        else:
            self._seeding.counts["class-over-cap"] += 1
        self._classes[label] = item
        return None

    def _take_labels(
        self, block: SampleBlock, offset: int, waiting: list[tuple[int, int, int, int, int]]
    ) -> list[BadRecord]:
        columns = np.array(waiting, np.int32).reshape(-1, 5)
        nobody = np.full(len(columns), -1, np.int32)
        batch = SeedBatch(
            left=columns[:, 0].copy(),
            right=columns[:, 1].copy(),
            sign=columns[:, 2].astype(np.int8),
            row=columns[:, 3].copy(),
            part=columns[:, 4].copy(),
            time_ms=np.full(len(columns), block.time_ms, np.int64),
            source=nobody,
            via=seed_log.LABEL,
        )
        return self._seeding.take(batch, block, offset, vote=False)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The type of the labels, the classes, and the first item of each."""
        classes = list(self._classes)
        return {
            "labels": _WORDS[self._kind],
            "classes": np.array(classes, np.int64) if self._kind is int else json.dumps(classes),
            "first": np.array(list(self._classes.values()), np.int32),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        self._kind = {word: kind for kind, word in _WORDS.items()}[str(state["labels"])]
        raw = state["classes"]
        labels: list[int | str] = raw.tolist() if isinstance(raw, np.ndarray) else json.loads(str(raw))
        firsts = np.asarray(state["first"]).tolist()
        self._classes = dict(zip(labels, firsts, strict=True))
