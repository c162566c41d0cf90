"""A space of the service, whatever holds its items: what is asked of it, and one handling of the gate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from kinstream.gate.lists.list_id import Shown
from kinstream.search.drafts.drafts import drafts_of
from kinstream.search.drafts.randomising import randomising_of
from kinstream.search.drafts.serving_choice import Decided
from kinstream.search.feedback.recorder import Actor, Recorder, tables_of
from kinstream.search.index.items import Modalities
from kinstream.search.models.model import Name
from kinstream.search.models.staleness import Staleness
from kinstream.search.models.subscription import Subscription
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import Settings

#: A neighbour as JSON: its `id`, what ranks it, and more.
Neighbour = dict[str, Any]
#: Receives the version of a model.
Used = Callable[[Version], None]


class TooLarge(Exception):
    """The distances or similarities of the query `row` are too large to be numbers."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(f"its {what} are too large to be numbers")
        self.row = row


class Unsupported(Exception):
    """The backend of the space cannot answer such a request."""


class Waiting(NamedTuple):
    """What a service is waiting for, and why it is not there: an error may name hosts, files and tables.

    Its text is for clients that may ask; probes, which are open to all, show `what` alone.
    """

    what: str
    why: str | None = None

    def __str__(self) -> str:
        return self.what if self.why is None else f"{self.what}: {self.why}"


class Query(NamedTuple):
    """The queries of a request.

    Parameters
    ----------
    names : what tells one query from another, n of them.
    query_id : tells all of them from those of other requests, in place of `names`.
    rows : (n, d) float32; None for queries by item, or by text alone.
    items : of the catalogue, for queries by item.
    where : the filter of the request; None without one.
    texts : n of them, for a space that is searched by words too; None without.
    own : vectors (n, d') float32 for signals that are similarities, by name; without one, `rows` are compared.
    explain : whether neighbours show their signals.
    actor : whom the lists are shown to.
    recorded : whether the lists may be recorded: neighbours have their signals.
    """

    names: Sequence[bytes]
    k: int
    query_id: str | None = None
    rows: Vectors | None = None
    items: Sequence[str] = ()
    where: Any = None
    texts: Sequence[str] | None = None
    explain: bool = False
    actor: Actor = Actor()
    recorded: bool = False
    own: Mapping[str, Vectors] = MappingProxyType({})


class Side(NamedTuple):
    """A model, and what it ranks.

    Parameters
    ----------
    model : as JSON.
    version : un-adapted if nothing is learned.
    ranked : neighbours by the number of the query, best first.
    """

    model: dict[str, Any]
    version: Version
    ranked: Mapping[int, list[Neighbour]]


class Found(NamedTuple):
    """What a space has found, before lists are drawn from it.

    Parameters
    ----------
    serving : of every query.
    candidate : of the queries that get a drafted list; None if there are none.
    state : of the items, as JSON.
    more : further fields of each result.
    decided : what the gate has decided; None without a gate.
    missing : whether the model that serves by decision is not available.
    """

    serving: Side
    candidate: Side | None
    state: dict[str, Any]
    more: Sequence[dict[str, Any]]
    decided: Decided | None = None
    missing: bool = False


class Answer(NamedTuple):
    """The body of an answer as JSON, and how many of its lists were drawn."""

    body: dict[str, Any]
    drafted: int
    randomised: int


class Space(ABC):
    """One space. Any thread may call it.

    Parameters
    ----------
    learner : whose models serve; of a pinned model the one that it names.
    subscription : to its newest model; None for a pinned one.
    """

    #: What ranks a neighbour: the field is null in lists that are drawn, since it would show whose pick an item is.
    measure: ClassVar[str]
    #: Whether neighbours have signals that an answer can show, and whether queries can be texts.
    explains: bool = False
    texts: bool = False
    #: Signals for which queries may have vectors of their own.
    comparable: tuple[str, ...] = ()

    def __init__(
        self, settings: Settings, name: str, learner: str, subscription: Subscription | None
    ) -> None:
        self.name = name
        self.learner = learner
        self.subscription = subscription
        self.drafts = drafts_of(settings, name) if name in settings.gate else None
        self.randomising = randomising_of(settings, name)
        #: Of a space with `record`; the service sets it.
        self.recorder: Recorder | None = None

    # ---- state --------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def modalities(self) -> Modalities | None:
        """Names and features of the vectors of a query; empty while unknown, None if a query is one vector."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """Features of the one vector of a query; None while unknown, or if any are taken."""

    @property
    @abstractmethod
    def known(self) -> bool:
        """Whether all models from before the start are known, and those that the gate names were tried."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether queries are answered."""

    @property
    @abstractmethod
    def behind(self) -> bool:
        """Whether another model is to serve than the one that serves."""

    @property
    @abstractmethod
    def serving(self) -> tuple[Name, bool]:
        """The model that serves, and whether it is a learned one; without waiting for anything."""

    @abstractmethod
    def decided(self) -> tuple[Decided, bool] | None:
        """What the gate has decided, and whether that model is missing; None without a gate."""

    @abstractmethod
    def waiting_for(self) -> Iterator[Waiting]:
        """What the space is waiting for; nothing once it is ready."""

    @abstractmethod
    def shown(self) -> dict[str, Any]:
        """Its state as JSON."""

    def staleness(self) -> Staleness | None:
        """The age of the newest model; None for a pinned one."""
        return None if self.subscription is None else self.subscription.staleness()

    def notes(self) -> Iterator[str]:
        """What a person should know although the space is ready. It names spaces and models, and no file."""
        found = None if self.subscription is None else self.subscription.choice.withheld
        if found is not None:
            yield f"space {self.name!r}: the newest model of {self.learner} is withheld, {found}"

    def held(self, query: Query) -> int:
        """Items of all queries that are in memory at once."""
        return len(query.names) * query.k

    def withheld(self) -> dict[str, Any]:
        """That the learner withholds its newest model, if it does."""
        found = None if self.subscription is None else self.subscription.choice.withheld
        return {} if found is None else {"withheld": found.named()}

    # ---- answers ------------------------------------------------------------------------------------------------

    @abstractmethod
    def map(self, rows: Vectors) -> tuple[dict[str, Any], Side, Vectors]:
        """The images of vectors (n, d) under the serving model: the state as JSON, the model, (n, m) float32."""

    @abstractmethod
    def _ask(self, query: Query, drafted: list[int], used: Used) -> Found:
        """What is found under the serving model, and for the queries `drafted` under the candidate."""

    def answer(self, query: Query, used: Used) -> Answer:
        """The nearest items of each query, and lists that are drafted or randomised for some of them.

        Parameters
        ----------
        used : receives the name of each model that the answer comes from.

        Raises
        ------
        TooLarge, Unsupported, NotReady, WrongDimension, UnknownItem, BadFilter, StoreAway
        """
        drafts, randomising, k = self.drafts, self.randomising, query.k
        query = query._replace(recorded=self.recorder is not None)
        found = self._ask(query, [] if drafts is None else drafts.rows(query.names, query.query_id, k), used)
        serving, candidate, decided = found.serving, found.candidate, found.decided
        randomised: dict[int, list[Neighbour]] = {}
        drafted: dict[int, list[Neighbour]] = {}
        ids: dict[int, str] = {}

        def draw(into: dict[int, list[Neighbour]], row: int, shown: Shown, *ranked: list[Neighbour]) -> None:
            fields = {one["id"]: one for hits in ranked for one in reversed(hits)}
            into[row] = [self._drawn(fields[item]) for item in shown.items]
            ids[row] = shown.list_id

        if randomising is not None:
            for row in randomising.rows(query.names, query.query_id, k):
                hits = serving.ranked[row]
                draw(randomised, row, randomising.shown(serving.version, _ids(hits), k), hits)
        if drafts is not None and candidate is not None and decided is not None:
            for row, others in candidate.ranked.items():
                hits = serving.ranked[row]
                pair = (decided.version, _ids(hits)), (candidate.version, _ids(others))
                # An item that both have found is shown as the serving model has found it.
                draw(drafted, row, drafts.shown(*pair, k, decided.newest), others, hits)
        drawn = randomised | drafted
        results = [
            {"neighbours": drawn.get(row, serving.ranked[row])} | more for row, more in enumerate(found.more)
        ]
        body = {"space": self.name, "model": serving.model} | self.withheld() | found.state
        if drafts is not None or randomising is not None or self.recorder is not None:
            for row, result in enumerate(results):
                result["list_id"] = ids.get(row)
        if decided is not None:
            named = None
            if candidate is not None and drafted:
                named = candidate.model
                used(candidate.version)
            body |= {"candidate": named, "gate": gate_state(decided, found.missing)}
        for result in results:
            if len(result["neighbours"]) < k and (why := self._why_fewer(query)) is not None:
                result["fewer"] = why
        self._record(query, serving.version, results)
        return Answer(body | {"results": results}, len(drafted), len(randomised))

    def _record(self, query: Query, model: Version, results: list[dict[str, Any]]) -> None:
        """Write the lists that are shown, and leave out what only that needs."""
        if self.recorder is None:
            return
        vectors = [] if query.rows is None else tables_of(query.rows, self.modalities)
        self.recorder.show(results, query.actor, model, vectors, query.items)
        if self.explains and not query.explain:
            for result in results:
                result["neighbours"] = [
                    {name: value for name, value in one.items() if name != "signals"}
                    for one in result["neighbours"]
                ]

    def _drawn(self, neighbour: Neighbour) -> Neighbour:
        """A neighbour as a list shows it that is drawn."""
        return neighbour | {self.measure: None}

    def _why_fewer(self, query: Query) -> str | None:
        """What answers say of results with fewer than k items; None for nothing."""
        return None


def gate_state(decided: Decided, missing: bool) -> dict[str, Any]:
    """What an answer says of the gate, as JSON."""
    # A model that does not fit the store is missing, too.
    return decided.named() | {"missing": missing}


def _ids(ranked: list[Neighbour]) -> list[str]:
    return [one["id"] for one in ranked]
