"""Simulated result lists over labelled rows: items of the query's class are relevant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.loads.item_rows import ItemRows
from kinstream.producers.loads.row_numbers import row_numbers
from kinstream.producers.simulated import click_models
from kinstream.producers.simulated.settings import Simulation
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import DEFAULT_MODALITY, Click, ItemClick, Table

#: Changes whenever the same items and settings give other lists.
VERSION: Final = 1
#: Time that a user reads a result, in milliseconds.
_GLANCE_MS: Final = 1000
#: Standard deviation of the logarithm of dwell times.
_DWELL_SPREAD: Final = 0.5


class ClickSimulator:
    """Result lists and their clicks. Each list depends on seed, settings, items and its number alone.

    Parameters
    ----------
    features : (n, d) numbers, or a mapping from modality to such.
    labels : (n,) classes.
    settings : see `Simulation`.
    ids : n names of the items, each once; None for their row numbers.

    Raises
    ------
    SettingsError : there are fewer other items than a list is long, or shapes do not go together.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(12), np.arange(12) % 3
    >>> simulator = ClickSimulator(X, y, Simulation(lists=2, list_length=3, bias=0, noise=0, seed=1))
    >>> [len(click.items) for click in simulator.clicks("toys")]
    [3, 3]
    >>> simulator.click(1, "toys").items == list(simulator.clicks("toys"))[1].items
    True
    """

    def __init__(
        self,
        features: NDArray[Any] | Mapping[str, NDArray[Any]],
        labels: NDArray[Any] | Sequence[Any],
        settings: Simulation | None = None,
        ids: Sequence[str] | None = None,
    ) -> None:
        named = features if isinstance(features, Mapping) else {DEFAULT_MODALITY: features}
        self.settings: Final = settings or Simulation()
        self._tables = tuple(Table(name, np.ascontiguousarray(x, np.float32)) for name, x in named.items())
        rows = len(labels)
        self._ids = tuple(map(str, range(rows))) if ids is None else tuple(ids)
        shapes = [t.vectors.shape for t in self._tables]
        if any(len(shape) != 2 or shape[0] != rows for shape in shapes) or len(set(self._ids)) != rows:
            raise SettingsError(f"{rows} labels, features of {shapes}, {len(set(self._ids))} different ids")
        if rows <= self.settings.list_length:
            raise SettingsError(f"{rows} items are too few for lists of {self.settings.list_length}")
        _, self._classes = np.unique(np.asarray(labels), return_inverse=True)
        # Rows by class: those of a class lie between two of the bounds.
        self._by_class = np.argsort(self._classes, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._classes))])
        self._place = np.empty(rows, np.intp)
        self._place[self._by_class] = np.arange(rows)
        digest = hashlib.blake2b(f"simulated-clicks {self.settings.seed}".encode(), digest_size=16).digest()
        self._key = np.frombuffer(digest, "<u8").astype(np.uint64)

    @property
    def classes(self) -> int:
        """The number of different labels."""
        return len(self._bounds) - 1

    @property
    def identity(self) -> str:
        """Digest of items and settings: equal identities give equal lists."""
        described = [
            VERSION,
            asdict(self.settings),
            self._ids,
            [(t.name, t.vectors.shape) for t in self._tables],
        ]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        digest.update(self._classes.astype("<i8").tobytes())
        for table in self._tables:
            digest.update(table.vectors.tobytes())
        return digest.hexdigest()

    def items(self) -> ItemRows:
        """The catalogue: every item at the time of the first list."""
        times = np.full(len(self._ids), self.settings.start_ms, np.int64)
        return ItemRows(self._ids, self._tables, np.zeros(len(self._ids), np.bool_), times)

    def clicks(self, space: str, start: int = 0, stop: int | None = None) -> Iterator[Click]:
        """Lists start..stop-1; None for all."""
        for number in range(start, self.settings.lists if stop is None else stop):
            yield self.click(number, space)

    def click(self, number: int, space: str) -> Click:
        """The list of that number."""
        settings = self.settings
        rng = np.random.Generator(np.random.Philox(key=self._key, counter=number << 128))
        query = int(rng.integers(len(self._ids)))
        shown = self._ranked(query, self._drawn(query, rng), rng)
        relevant = self._classes[shown] == self._classes[query]
        if settings.model == "cascade":
            clicked = click_models.cascade(relevant, settings.noise, settings.stop, rng)
        else:
            clicked = click_models.position_based(relevant, settings.noise, settings.bias, rng)
        spread = np.exp(_DWELL_SPREAD * rng.standard_normal(len(shown)))
        dwell = np.rint(np.where(relevant, settings.dwell_ms, settings.short_dwell_ms) * spread).astype(
            np.int64
        )
        shown_at = settings.start_ms + number * settings.spacing_ms
        session = number // settings.session_lists
        user = _user_number(settings.seed, session) % settings.users
        by_item = settings.query == "item"
        vector = tuple(Table(t.name, t.vectors[query : query + 1]) for t in self._tables)
        return Click(
            space,
            f"list-{number}",
            tuple(map(self._ids.__getitem__, shown.tolist())),
            tuple(range(len(shown))),
            tuple(self._timed(shown, clicked, dwell, shown_at)),
            shown_at,
            f"session-{session}",
            f"user-{user}",
            self._ids[query] if by_item else None,
            () if by_item else vector,
        )

    def _drawn(self, query: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Rows of a list, each once and none of them the query."""
        begin, end = self._bounds[self._classes[query] : self._classes[query] + 2].tolist()
        same, other = end - begin - 1, len(self._ids) - (end - begin)
        length = self.settings.list_length
        wanted = min(max(round(self.settings.relevant * length), length - other), same)
        near = begin + rng.choice(same, wanted, replace=False) if wanted else np.empty(0, np.intp)
        near += near >= self._place[query]
        far = rng.choice(other, length - wanted, replace=False) if length > wanted else np.empty(0, np.intp)
        far += np.where(far >= begin, end - begin, 0)
        rows: NDArray[np.intp] = self._by_class[np.concatenate([near, far])]
        return rows

    def _ranked(self, query: int, rows: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
        order: NDArray[np.intp] = rng.permutation(rows)
        if self.settings.ranking == "by-similarity":
            distances = sum(
                ((t.vectors[order].astype(np.float64) - t.vectors[query]) ** 2).sum(axis=1)
                for t in self._tables
            )
            order = order[np.argsort(distances, kind="stable")]
        return click_models.fair_pairs(order, rng) if self.settings.fair_pairs else order

    def _timed(
        self,
        shown: NDArray[np.intp],
        clicked: NDArray[np.bool_],
        dwell: NDArray[np.int64],
        shown_at: int,
    ) -> Iterator[ItemClick]:
        """Clicks from the top down: a short reading time for each result, and a dwell time for each clicked one."""
        stayed = 0
        for place in np.flatnonzero(clicked).tolist():
            stay = int(dwell[place])
            yield ItemClick(self._ids[shown[place]], shown_at + _GLANCE_MS * (place + 1) + stayed, stay)
            stayed += stay


@lru_cache(maxsize=16)
def _user_number(seed: int, session: int) -> int:
    """A number for the user of a session, whose lists come one after another."""
    return int(row_numbers("simulated user", seed, session, session + 1)[0])
