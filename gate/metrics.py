"""What the page of the gate's worker shows: who serves each space, and the running evidence."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.gate.core import SpaceGate
from kinstream.gate.exposure.counts import Exposed
from kinstream.gate.exposure.metrics import families
from kinstream.gate.lists.evidence import decisive
from kinstream.gate.tail import needed

_SPACE: Final = ("space",)


@dataclass(frozen=True, slots=True)
class GateView:
    """The gate of a space at one moment."""

    serving: str
    adapted: bool
    challenger: str | None
    pinned: bool
    impressions: int
    wins: int
    losses: int
    log_e_for: float
    log_e_against: float
    needed: float
    tail: dict[str, float]
    learned: int
    fates: dict[str, int]
    verdicts: dict[str, int]
    exposure: Exposed


class Board:
    """The newest view of every space that this worker owns. Any thread may read it.

    Parameters
    ----------
    shares : by space, of the queries that are to get a drafted list.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = shares
        self._views: dict[str, tuple[int, GateView]] = {}
        self._lock = threading.Lock()

    def put(self, partition: int, space: str, gate: SpaceGate) -> None:
        """Take the view of a gate."""
        challenger = None if gate.challenger is None else str(gate.challenger)
        view = GateView(
            str(gate.serving),
            gate.serving.generation > 0,
            challenger,
            gate.pinned,
            gate.impressions,
            gate.evidence.wins,
            gate.evidence.losses,
            gate.log_e_for,
            gate.evidence.log_e_against,
            decisive(gate.options.error, gate.stake),
            gate.tail.measured() | {"tail_log_e_needed": needed(gate.options.error)},
            gate.tail.learned,
            {str(name): count for name, count in gate.fates.items()},
            {str(name): count for name, count in gate.verdicts.items()},
            gate.exposure.exposed(),
        )
        with self._lock:
            self._views[space] = partition, view

    def drop(self, partition: int) -> None:
        """Forget the spaces of a partition that another worker owns now."""
        with self._lock:
            self._views = {name: found for name, found in self._views.items() if found[0] != partition}

    def views(self) -> dict[str, GateView]:
        """By space."""
        with self._lock:
            return {name: view for name, (_, view) in sorted(self._views.items())}


class GateCollector(Collector):
    """Series of the board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        lists = CounterMetricFamily(
            "kinstream_gate_lists",
            "Records of drafted lists that came back, by fate: won, lost or tied by the challenger; shown, without a "
            "click; or left out for the reason named.",
            labels=("space", "fate"),
        )
        decisions = CounterMetricFamily(
            "kinstream_gate_decisions", "Decisions of the gate, by verdict.", labels=("space", "verdict")
        )
        serving = GaugeMetricFamily(
            "kinstream_gate_serving_info",
            "Always 1. The model that serves, as GENERATION.EPOCH.STEP or un-adapted.",
            labels=("space", "version"),
        )
        adapted = GaugeMetricFamily("kinstream_gate_adapted", "1 if a learned model serves.", labels=_SPACE)
        pinned = GaugeMetricFamily("kinstream_gate_pinned", "1 if people have pinned a model.", labels=_SPACE)
        challenged = GaugeMetricFamily(
            "kinstream_gate_challenged",
            "1 while a challenger is compared with the serving model.",
            labels=_SPACE,
        )
        impressions = GaugeMetricFamily(
            "kinstream_gate_impressions", "Drafted lists of the comparison that runs.", labels=_SPACE
        )
        decided = GaugeMetricFamily(
            "kinstream_gate_decided_lists",
            "Drafted lists of the comparison that one side has won, by the winner: challenger or serving.",
            labels=("space", "winner"),
        )
        evidence = GaugeMetricFamily(
            "kinstream_gate_log_e_value",
            "Natural log of the e-value that users prefer the side, for the challenger without the votes that may be "
            "bought; the gate promotes at kinstream_gate_log_e_value_needed.",
            labels=("space", "winner"),
        )
        needed = GaugeMetricFamily(
            "kinstream_gate_log_e_value_needed",
            "The log e-value at which the gate promotes the challenger.",
            labels=_SPACE,
        )
        tail = GaugeMetricFamily(
            "kinstream_gate_tail_decided_lists",
            "Of kinstream_gate_decided_lists, those whose query was not asked before.",
            labels=("space", "winner"),
        )
        tail_evidence = GaugeMetricFamily(
            "kinstream_gate_tail_log_e_value",
            "Natural log of the e-value that the challenger loses less than 1 % of all votes at queries that were not "
            "asked before; the gate promotes at kinstream_gate_tail_log_e_value_needed.",
            labels=_SPACE,
        )
        tail_needed = GaugeMetricFamily(
            "kinstream_gate_tail_log_e_value_needed",
            "The log e-value of queries that were not asked before at which the gate promotes the challenger.",
            labels=_SPACE,
        )
        learned = GaugeMetricFamily(
            "kinstream_gate_learned_lists",
            "Clicked lists since the space began, drafted or not. There is no challenger before min_learned of them.",
            labels=_SPACE,
        )
        share = GaugeMetricFamily(
            "kinstream_gate_share",
            "Share of the queries that are to get a drafted list, by the settings of the gate.",
            labels=_SPACE,
        )
        views = self._board.views()
        for space, view in views.items():
            share.add_metric([space], self._board.shares[space])
            for fate, count in view.fates.items():
                lists.add_metric([space, fate], count)
            for verdict, count in view.verdicts.items():
                decisions.add_metric([space, verdict], count)
            serving.add_metric([space, view.serving], 1)
            adapted.add_metric([space], view.adapted)
            pinned.add_metric([space], view.pinned)
            challenged.add_metric([space], view.challenger is not None)
            impressions.add_metric([space], view.impressions)
            for winner, wins, log_e in (
                ("challenger", view.wins, view.log_e_for),
                ("serving", view.losses, view.log_e_against),
            ):
                decided.add_metric([space, winner], wins)
                evidence.add_metric([space, winner], log_e)
            needed.add_metric([space], view.needed)
            tail.add_metric([space, "challenger"], view.tail["tail_wins"])
            tail.add_metric([space, "serving"], view.tail["tail_losses"])
            tail_evidence.add_metric([space], view.tail["tail_log_e"])
            tail_needed.add_metric([space], view.tail["tail_log_e_needed"])
            learned.add_metric([space], view.learned)
        yield from (
            lists,
            decisions,
            serving,
            adapted,
            pinned,
            challenged,
            impressions,
            decided,
            evidence,
            needed,
            tail,
            tail_evidence,
            tail_needed,
            learned,
            share,
            *families({space: view.exposure for space, view in views.items()}),
        )
