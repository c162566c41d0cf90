"""Recall of an index, sampled against the exact scan in parallel to the answers, never before them.

The recall of an exact index is 1; it is sampled too, because nothing else would show a faulty index.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from typing import Final

from kinstream.search.models.model import Model
from kinstream.search.spaces.searcher import Answer, Searcher
from kinstream.streams.records.values import Vectors

log = logging.getLogger("kinstream.search")

_WAITING: Final = 4
#: Number of samples in the ratio.
_WINDOW: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    searcher: Searcher
    model: Model
    row: Vectors
    names: Sequence[str]


class RecallSampler:
    """Checks every n-th query of a space in a thread of its own. Samples beyond its capacity are left out and counted.

    Parameters
    ----------
    every : n; 0 checks none.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._queries: Counter[str] = Counter()
        #: None wakes the thread to end.
        self._waiting: Queue[_Sample | None] = Queue(_WAITING)
        self._window: dict[str, deque[float]] = {}
        #: Samples by space and fate: measured, outdated (the catalogue was reset), dropped.
        self.fates: Counter[tuple[str, str]] = Counter()
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinstream-recall", daemon=True)

    def start(self) -> None:
        if self._every:
            self._thread.start()

    def stop(self) -> None:
        """End the thread after its current sample; it is a daemon and is not waited for."""
        self._stopping.set()
        with suppress(Full):
            self._waiting.put_nowait(None)

    def offer(self, searcher: Searcher, rows: Vectors, answer: Answer) -> None:
        """Note the queries of an answer, and take every n-th of the space."""
        if not self._every:
            return
        with self._guard:
            before = self._queries[searcher.space]
            self._queries[searcher.space] = after = before + len(rows)
        for row in range(-before % self._every, after - before, self._every):
            if not answer.names[row]:
                continue
            try:
                self._waiting.put_nowait(
                    _Sample(searcher, answer.used, rows[row : row + 1], answer.names[row])
                )
            except Full:
                self.fates[searcher.space, "dropped"] += 1

    def ratio(self, space: str) -> float | None:
        """Share of the true neighbours that were found, over the newest samples; None before the first."""
        window = self._window.get(space)
        return sum(window) / len(window) if window else None

    def _run(self) -> None:
        while not self._stopping.is_set():
            sample = self._waiting.get()
            if sample is None:
                return
            try:
                self.measure(sample)
            except Exception:
                log.exception("a sample of recall failed")

    def measure(self, sample: _Sample) -> None:
        """Compare one answer with the scan under its own model."""
        space = sample.searcher.space
        found = sample.searcher.scan(sample.model, sample.row, len(sample.names))
        if found is None:
            self.fates[space, "outdated"] += 1
            return
        share = len(set(found[0]) & set(sample.names)) / len(sample.names)
        self._window.setdefault(space, deque(maxlen=_WINDOW)).append(share)
        self.fates[space, "measured"] += 1
