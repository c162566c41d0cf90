"""Drafted and randomised lists of the query agent.

In a drafted list, a second index, of the candidate, picks in turn with the serving one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from kinstream.gate.lists.list_id import Shown
from kinstream.search.drafts.drafts import Drafts
from kinstream.search.drafts.randomising import Randomising
from kinstream.search.drafts.serving_choice import Decided, Deciding
from kinstream.search.models.model import Model
from kinstream.search.spaces.searcher import Answer, NotReady, Searcher, Standing, UnknownItem, WrongDimension
from kinstream.streams.records.gate import UNADAPTED, Version

#: Attempts to ask both indexes in the same state of the catalogue.
_ATTEMPTS: Final = 3
_RAW: Final = Model()

#: Asks an index for the queries of these numbers, or for all of them.
Ask = Callable[[Searcher, Sequence[int] | None], Answer]


class DraftedAnswer(NamedTuple):
    """An answer, and what was drawn from it.

    Parameters
    ----------
    answer : of the serving model.
    decided : what the gate had decided; None without a gate.
    lists : the drafted lists, by the number of their query.
    candidate : the answer of the other side; None if no list was drafted.
    randomised : the randomised lists, by the number of their query.
    """

    answer: Answer
    decided: Decided | None = None
    lists: Mapping[int, Shown] = MappingProxyType({})
    candidate: Standing | None = None
    randomised: Mapping[int, Shown] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Drafting:
    """The gate of one space, obeyed. Any thread may call it.

    Parameters
    ----------
    deciding : who serves.
    drafts : which queries get a drafted list.
    candidate : searches under the first candidate.
    """

    deciding: Deciding
    drafts: Drafts
    candidate: Searcher

    def search(
        self, serving: Searcher, ask: Ask, queries: Sequence[bytes], query_id: str | None, k: int
    ) -> DraftedAnswer:
        """Answer queries under the serving model, and draft the lists of some of them.

        No list is drafted while an index is not on the model that the gate has decided on.

        Parameters
        ----------
        serving : the index of the serving model.
        queries, query_id : as `Drafts.rows` takes them.

        Raises
        ------
        NotReady, WrongDimension, UnknownItem : as the serving index.
        """
        rows = self.drafts.rows(queries, query_id, k)
        for _ in range(_ATTEMPTS):
            decided = self.deciding.now()
            answer = ask(serving, None)
            if not rows or decided.missing or _version(answer.standing) != decided.version:
                break
            try:
                other = ask(self.candidate, rows)
            except (NotReady, WrongDimension, UnknownItem):
                break
            if not _among(other.standing, decided) or any(
                far and far[-1] == float("inf") for far in other.distances
            ):
                break
            if _catalogue(answer.standing) != _catalogue(other.standing):
                continue  # one of them has a change that the other is about to get
            names = decided.version, _version(other.standing)
            lists = {
                row: self.drafts.shown(
                    (names[0], answer.names[row]), (names[1], other.names[place]), k, decided.newest
                )
                for place, row in enumerate(rows)
            }
            return DraftedAnswer(answer, decided, lists, other.standing)
        return DraftedAnswer(answer, decided)


def randomised(
    found: DraftedAnswer,
    randomising: Randomising,
    queries: Sequence[bytes],
    query_id: str | None,
    k: int,
) -> DraftedAnswer:
    """An answer with randomised lists of the serving model, of the queries that get one."""
    answer = found.answer
    version = _version(answer.standing)
    rows = randomising.rows(queries, query_id, k)
    return found._replace(randomised={row: randomising.shown(version, answer.names[row], k) for row in rows})


def serving_model(deciding: Deciding) -> Callable[[], Model]:
    """The model that serves by decision; the un-learned map while it is missing."""
    return lambda: deciding.now().serving or _RAW


def candidate_model(deciding: Deciding) -> Callable[[], Model]:
    """The first candidate; the un-learned map if there is none."""
    return lambda: next(iter(deciding.now().candidates), _RAW)


def _catalogue(standing: Standing) -> tuple[int, int]:
    """The state of the catalogue."""
    return standing.epoch, standing.offset


def _version(standing: Standing) -> Version:
    return Version(*standing.model) if standing.learned else UNADAPTED


def _among(standing: Standing, decided: Decided) -> bool:
    return standing.learned and any(standing.model == one.name for one in decided.candidates)
