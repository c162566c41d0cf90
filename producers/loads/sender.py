"""Sends a load to `kinstream.events`: each block once, in order, every delivery confirmed.

A load is a fixed sequence of blocks with (load id, sequence). A killed load continues at its first unconfirmed block;
builders drop blocks that are sent twice, by their sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from kinstream.producers.loads.blocks import BESIDE_BLOCK_BYTES, MAX_BLOCK_BYTES, Cut, Position, Rows
from kinstream.producers.loads.pacing import Pacing, Rate, Unpaced
from kinstream.producers.loads.progress import LoadProgress, ProgressFolder
from kinstream.streams import failpoints
from kinstream.streams.errors import DeliveryError
from kinstream.streams.kafka.emitter import Sink
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Event
from kinstream.streams.traces.loads import LoadTraces, headers_of

#: The sender waits for confirmations after this many bytes or seconds, or before a longer pause.
CONFIRM_BYTES: Final = 16 * 1024 * 1024
CONFIRM_SECONDS: Final = 1.0
LONG_PAUSE_SECONDS: Final = 0.2


R = TypeVar("R", bound=Rows)


class Load(Protocol[R]):
    """A fixed sequence of blocks, the same at every start."""

    @property
    def load_id(self) -> str:
        """The id in its blocks."""

    @property
    def named(self) -> bool:
        """Whether the user has given the load its id."""

    @property
    def space(self) -> str:
        """The space of the blocks."""

    @property
    def rows(self) -> int:
        """Rows of all blocks together."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Further facts for the summary, by name."""

    def fit(self, max_bytes: int) -> None:
        """Make no block larger than this, before the first is cut. Less than the usual limit makes another load.

        Raises
        ------
        SourceError : a row does not fit.
        """

    def shaping(self) -> dict[str, Any]:
        """Everything that the content of a block with a given sequence depends on."""

    def cuts(self, start: Position, /) -> Iterator[Cut[R]]:
        """The rows of each block, from a position on, raising SourceError."""

    def block(self, cut: Cut[R], sequence: int, time_ms: int) -> Event:
        """The record of a cut. `time_ms` is the time of sending."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of one run of a load.

    Parameters
    ----------
    rows, blocks, bytes, seconds : sent and confirmed by this run.
    total_rows, total_blocks : of the load, up to the end of this run.
    resumed_from : sequence of the first block of this run; 0 for a load from its start.
    was_complete : everything was confirmed before, and nothing was sent.
    facts : facts of the load about its source, see `Load.facts`.
    """

    load_id: str
    space: str
    rows: int
    blocks: int
    bytes: int
    seconds: float
    total_rows: int
    total_blocks: int
    resumed_from: int
    was_complete: bool
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """The progress of a run: rows sent so far, rows of the load, and what this run has sent."""

    rows: int
    of: int
    blocks: int
    bytes: int


def _ignore(sent: Sent) -> None:
    """For a load without a progress display."""


def produce(
    load: Load[R],
    sink: Sink,
    topic: str,
    *,
    folder: ProgressFolder | None = None,
    traces: LoadTraces | None = None,
    rate: Rate | None = None,
    pacing: Pacing | None = None,
    watch: Callable[[Sent], None] = _ignore,
    deadline_seconds: float = 120.0,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Summary:
    """Send a load, or the rest of it.

    Parameters
    ----------
    sink : an `Emitter` with the configuration of `kinstream.streams.kafka.clients.confluent_producer`.
    folder : folder of progress files; None keeps none and begins at sequence 0.
    traces : begins the traces of blocks; None traces none.
    rate, pacing : limits on the speed; None for no limit.
    watch : called after each block.
    deadline_seconds : for confirmations.

    Raises
    ------
    DeliveryError : a block was rejected or not confirmed in time.
    SettingsError : the load was begun with other settings.
    SourceError : a row cannot be used. The blocks before it are sent.
    Stalled : consumers do not read.
    """
    shaping = load.shaping()
    if folder is None:
        progress = LoadProgress(load.load_id, shaping, {})
    else:
        progress = folder.begin(load.load_id, shaping, named=load.named)
    run = _Run(load, sink, topic, progress, folder, deadline_seconds, clock, traces or LoadTraces())
    if not progress.complete:
        try:
            _send_all(run, rate or Rate(None), pacing or Unpaced(), watch, pause, now_ms)
        except DeliveryError as error:
            # Sent again as it is, a block that is too large is rejected for ever.
            first = (
                f"once max.message.bytes of {topic} is {MAX_BLOCK_BYTES + BESIDE_BLOCK_BYTES} or more, "
                if error.too_large
                else ""
            )
            raise DeliveryError(
                f"{error}. {run.progress.rows} of {load.rows} rows of load {load.load_id} are confirmed; "
                f"{first}the same command continues from there"
            ) from error
    return run.summary(progress)


def _send_all(
    run: _Run[R],
    rate: Rate,
    pacing: Pacing,
    watch: Callable[[Sent], None],
    pause: Callable[[float], None],
    now_ms: Callable[[], int],
) -> None:
    for cut in run.load.cuts(run.progress.position):
        delay = rate.delay(len(cut.rows))
        if delay > LONG_PAUSE_SECONDS:
            run.confirm()
        if delay > 0:
            pause(delay)
        value = run.encoded(cut, now_ms())
        if not pacing.admit(len(value)):
            run.confirm()
            pacing.wait(len(value))
            # The wait is not part of the delay from event to metric.
            value = run.encoded(cut, now_ms())
        run.send(cut, value)
        watch(run.sent())
    run.finish()


class _Run(Generic[R]):
    """One run of a load: its sent and confirmed blocks."""

    def __init__(
        self,
        load: Load[R],
        sink: Sink,
        topic: str,
        progress: LoadProgress,
        folder: ProgressFolder | None,
        deadline_seconds: float,
        clock: Callable[[], float],
        traces: LoadTraces,
    ) -> None:
        self.load = load
        self._traces = traces
        self.progress = progress
        self._sink = sink
        self._topic = topic
        self._folder = folder
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._begun = self._confirmed_at = clock()
        self._ahead = progress
        self._blocks = self._bytes = self._unconfirmed_bytes = 0

    def encoded(self, cut: Cut[R], time_ms: int) -> bytes:
        return encode(self.load.block(cut, self._ahead.sequence, time_ms))

    def send(self, cut: Cut[R], value: bytes) -> None:
        load, sequence = self.load, self._ahead.sequence
        trace = self._traces.begin(load.load_id, load.space, sequence)
        self._sink.send(self._topic, load.space.encode(), value, headers_of(trace))
        if trace is not None:
            self._traces.sent(trace, self._topic, load.space, load.load_id, sequence)
        failpoints.hit("producer.after-send-before-ack")
        ahead = self._ahead
        self._ahead = ahead.at(ahead.sequence + 1, cut.after, ahead.rows + len(cut.rows))
        self._blocks += 1
        self._bytes += len(value)
        self._unconfirmed_bytes += len(value)
        late = self._clock() - self._confirmed_at > CONFIRM_SECONDS
        if late or self._unconfirmed_bytes > CONFIRM_BYTES:
            self.confirm()

    def confirm(self) -> None:
        """Wait for the brokers, then write the progress of the load."""
        if self._ahead is not self.progress:
            self._sink.confirm(self._deadline_seconds)
            self._note(self._ahead)
        self._unconfirmed_bytes = 0
        self._confirmed_at = self._clock()

    def finish(self) -> None:
        """Confirm the last blocks, and the load as a whole."""
        self.confirm()
        done = self._ahead
        self._note(done.at(done.sequence, done.position, done.rows, complete=True))

    def _note(self, progress: LoadProgress) -> None:
        self.progress = self._ahead = progress
        if self._folder is not None:
            self._folder.write(progress)

    def sent(self) -> Sent:
        return Sent(self._ahead.rows, self.load.rows, self._blocks, self._bytes)

    def summary(self, begun: LoadProgress) -> Summary:
        return Summary(
            load_id=self.load.load_id,
            space=self.load.space,
            rows=self.progress.rows - begun.rows,
            blocks=self._blocks,
            bytes=self._bytes,
            seconds=self._clock() - self._begun,
            total_rows=self.progress.rows,
            total_blocks=self.progress.sequence,
            resumed_from=begun.sequence,
            was_complete=begun.complete,
            facts=self.load.facts,
        )
