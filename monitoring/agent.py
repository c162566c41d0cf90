"""The metrics agent: outcomes in, Prometheus series out. It decodes, applies the chain rule, counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kinstream.learners.announcements import withholds
from kinstream.monitoring.exposition import OwnedTallies, TallyCollector
from kinstream.monitoring.roster import Roster
from kinstream.monitoring.tallies import Row, Tallies
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.agents.space import Core, Space
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.operations.checkpoints import Agent, checkpoints
from kinstream.streams.records.codec.codec import CODEC_VERSION, decode_outcome
from kinstream.streams.records.identity import Identity, read_identity
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State, without_prefix
from kinstream.streams.records.values import Outcome
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of

_TALLIES = "tallies."


class MetricsMachine(Machine):
    """One partition of `outcomes`. Its spaces hold the marks; the tallies belong to the partition."""

    def __init__(
        self,
        place: Place,
        settings: Settings,
        owned: OwnedTallies,
        load_space: Callable[[str], State] | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self.tallies = Tallies(window=settings.metrics.window, top_spaces=settings.metrics.top_spaces)
        self._owned = owned

    def make_core(self, name: str, space: Space) -> Core:
        raise RuntimeError("the spaces of the metrics agent hold no algorithm")

    def apply(self, message: Message) -> None:
        name = self.space_name(message)
        identity = self.receive(message, name)
        if identity is not None:
            self._apply(message, name, identity)

    def apply_again(self, message: Message, rows: Rows) -> None:
        self._apply(message, self.space_name(message), read_identity(message.headers))

    def pass_over(self, message: Message) -> bool:
        return self.receive(message, self.space_name(message)) is not None

    def _apply(self, message: Message, name: str, identity: Identity) -> None:
        record = decode_outcome(message.value)
        self.check_key(record, name)
        if not isinstance(record, Outcome):
            # A learner only passes on the deletion of a space; without this its series would grow old and raise an
            # alert.
            self._owned.forget(self.place.partition, name, identity.emitter)
            return
        recorded = (record.learner, record.generation, record.epoch)
        if recorded != (identity.emitter, identity.position.generation, identity.position.epoch):
            raise BadRecord(
                Reason.BAD_IDENTITY, f"the headers and the record disagree on who made it: {recorded}"
            )
        if self._owned.apply(self.place.partition, record, message.timestamp_ms):
            self.counts["applied"] += 1
        else:
            self.counts["stale_epoch"] += 1

    def partition_state(self) -> State:
        tallies = {_TALLIES + name: value for name, value in self.tallies.state().items()}
        return super().partition_state() | tallies

    def restore_partition(self, state: State) -> None:
        super().restore_partition({n: v for n, v in state.items() if not n.startswith(_TALLIES)})
        self.tallies.restore(without_prefix(_TALLIES, state))

    def gather(self, parts: Mapping[int, State], homes: Mapping[tuple[int, int], int]) -> None:
        super().gather(parts, homes)
        old = {p: without_prefix(_TALLIES, state) for p, state in parts.items()}
        partitions = self.place.input_partitions
        self.tallies.gather(old, self.place.partition, lambda space: partition_of(space, partitions))

    # ---- values for the page ------------------------------------------------------------------------------------

    def on_owned(self, live: bool) -> None:
        self._owned.assign(self.place.partition, self.tallies, live=live)

    def on_live(self) -> None:
        self._owned.go_live(self.place.partition)

    def on_revoked(self) -> None:
        self._owned.revoke(self.place.partition)


def metrics_spec(settings: Settings) -> AgentSpec:
    """The metrics agent of `[metrics]`."""
    owned = OwnedTallies()

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        return MetricsMachine(place, settings, owned, load_space)

    return AgentSpec(
        application="metrics",
        name="metrics",
        prefix=settings.topics.prefix,
        input_role="outcomes",
        output_role=None,
        shaping={
            "top_spaces": settings.metrics.top_spaces,
            "window": settings.metrics.window,
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
        pinned=settings.metrics.generation,
        collectors=(
            TallyCollector(owned, withholds=lambda learner: withholds(settings, learner)),
            Roster(settings),
        ),
    )


def read_tallies(settings: Settings) -> list[Row]:
    """The tallies of every space and learner in the newest checkpoints of the metrics agent. It needs no brokers.

    Raises
    ------
    CheckpointError : a checkpoint cannot be read.
    """
    rows: list[Row] = []
    for seen in checkpoints(settings, Agent("metrics", "metrics", settings.metrics.generation)):
        tallies = Tallies(window=settings.metrics.window, top_spaces=settings.metrics.top_spaces)
        tallies.restore(without_prefix(_TALLIES, seen.state(seen.manifest.partition_state)))
        rows += tallies.snapshot().rows
    return rows
