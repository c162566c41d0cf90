"""Lists with scores: people look for items that are near their query and have its words, and click on some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searches, catalogue, click_blocks
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import ClickBlock, ConstraintBlock, ItemBlock

D = 8
Rows = NDArray[np.float32]


class World:
    """Queries, items, and a log of lists in the order of the mean of similarity and `text`.

    Parameters
    ----------
    lists : how many.
    missing : share of the scores that lists do not have.
    acts : whether some clicks are purchases, which weigh 5.
    """

    def __init__(
        self, lists: int, seed: int = 0, missing: float = 0.0, shown: int = 12, *, acts: bool = False
    ) -> None:
        draw = np.random.default_rng(seed)
        items, queries = draw.normal(size=(300, D)), draw.normal(size=(120, D))
        self.items = (items / np.linalg.norm(items, axis=1, keepdims=True)).astype(np.float32)
        self.queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
        turned = queries @ np.linalg.qr(draw.normal(size=(D, D)))[0]
        text = np.maximum(draw.normal(size=(120, 300)), 0.0) * 5.0
        age = draw.exponential(30.0, size=300)
        near = queries @ self.items.T + 0.5 * turned @ self.items.T
        wanted = near + 0.4 * text - age / 40.0
        best = np.argsort(-(self.queries @ self.items.T + text / 10.0), axis=1)[:, :shown]
        query = draw.integers(120, size=lists)
        chance = 1.0 / (1.0 + np.exp(2.0 - wanted[query[:, None], best[query]]))
        clicked = draw.random(chance.shape) < chance * np.arange(1.0, shown + 1.0) ** -0.5
        clicked[np.arange(lists), draw.integers(shown, size=lists)] |= draw.random(lists) < 0.3
        self.acts = acts
        self.found = Searches(query, best[query], clicked, np.full(lists, -1))
        gone = draw.random((120, 300)) < missing
        self.signals = {
            "text": np.where(gone, np.nan, text),
            "age": np.broadcast_to(age, text.shape),
        }

    def blocks(self, cut: int = 10, names: tuple[str, ...] = ("age", "text")) -> Iterator[ConstraintBlock]:
        """What the builder makes of so many lists at a time, with these scores."""
        builder = Clicks(rules=("click-list",), action_weights={"purchase": 5.0} if self.acts else {})
        events: list[Any] = [*catalogue("s", self.items)]
        events += click_blocks("s", self.found, self.queries, cut)
        of_query = {row.tobytes(): i for i, row in enumerate(self.queries)}
        of_item = {row.tobytes(): i for i, row in enumerate(self.items)}
        for offset, event in enumerate(events):
            assert isinstance(event, ClickBlock | ItemBlock)
            if self.acts and isinstance(event, ClickBlock):
                bought = np.where(event.click_ms % 3 == 0, 0, -1).astype(np.int32)
                event = replace(event, kinds=("purchase",), action=bought)
            for block in builder.process(event, Origin(offset=offset, append_ms=0)).blocks:
                lists, vectors = block.lists, block.tables[0].vectors
                if lists is None or not names:
                    yield block
                    continue
                query = np.repeat(lists.query, np.diff(lists.starts))
                rows = [of_query[vectors[row].tobytes()] for row in query]
                columns = [of_item[vectors[row].tobytes()] for row in lists.item]
                scores = Scores.of({name: self.signals[name][rows, columns] for name in names})
                yield replace(block, lists=replace(lists, scores=scores))
