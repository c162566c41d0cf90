"""The agent: asks what it was asked, cites the answer if it is shown, and says so to the service."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinstream.cli.demo.search.material import SEED, Material
from kinstream.cli.demo.search.rankings import TOP, AskedQuery
from kinstream.search.client.client import FoundList, SearchClient

#: Questions that the agent is asked again and again.
QUESTIONS: Final = 200
CITED: Final = "cited"


class Agent:
    """Asks a question at a time, in rounds over all of them, each round in another order.

    Parameters
    ----------
    client : of the service.

    Attributes
    ----------
    asked, cited : so far.
    first, last : of each question the place of its answer when it was first and last asked, 0 for the first; `TOP`
        if it was not shown.
    """

    def __init__(self, material: Material, client: SearchClient) -> None:
        self._material, self._client = material, client
        self.rows = material.tested[:QUESTIONS].tolist()
        self.asked = self.cited = 0
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._waiting: list[int] = []
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return self._rounds - bool(self._waiting)

    @property
    def share(self) -> float:
        """Of the questions that were asked, those whose answer came first last time."""
        return sum(place == 0 for place in self.last.values()) / max(1, len(self.last))

    def moved(self) -> tuple[int, int, int]:
        """The row of the question whose answer has risen furthest, and its places, 1 for the first."""
        row = max(self.last, key=lambda one: (self.first[one] - self.last[one], -one))
        return row, self.first[row] + 1, self.last[row] + 1

    def turn(self) -> None:
        """One question.

        Raises
        ------
        ServiceError : the service did not answer, or refused the feedback.
        """
        if not self._waiting:
            self._rounds += 1
            self._waiting = np.random.default_rng([SEED, self._rounds]).permutation(self.rows).tolist()
        row = self._waiting.pop()
        made = self._material
        found = self.search(AskedQuery(made.functions[row].query, made.queries[row], row))
        place = found.ids.index(str(row)) if str(row) in found.ids else TOP
        if place < TOP:
            found.feedback(str(row), CITED)
            self.cited += 1
        self.asked += 1
        self.first.setdefault(row, place)
        self.last[row] = place

    def search(self, asked: AskedQuery) -> FoundList:
        """What the service shows for a query, by vector and text."""
        return self._client.search(asked.vector, asked.text, TOP, session=f"task-{self.asked}")

    def cite(self, asked: AskedQuery, row: int, times: int) -> int:
        """Cite an item in so many tasks of this question; returns in how many it was shown."""
        shown = 0
        for _ in range(times):
            found = self.search(asked)
            if str(row) in found.ids:
                found.feedback(str(row), CITED)
                shown += 1
        return shown

    def answers(self, asked: AskedQuery) -> dict[int, Any]:
        """Rows that the service shows for a query, best first, with their values."""
        return {int(one["id"]): one["value"] for one in self.search(asked).neighbours}
