"""Runs the demonstration of search: broker, agents, traffic, figures and the page."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import click

from kinstream.cli.demo.search.material import Making, Material
from kinstream.cli.demo.search.page import HOST, Page
from kinstream.cli.demo.search.rankings import MEASURED, Rankings
from kinstream.cli.demo.search.traffic import LISTS, PEOPLE, SPACE, Traffic
from kinstream.cli.local.ending import end, fresh_folder, tell_failure
from kinstream.cli.local.folder_lock import FolderLock
from kinstream.cli.local.system import LocalSystem, stop_on_signals
from kinstream.search.queries.adapter import QueryAdapter
from kinstream.streams.kafka.embedded_broker import NOTICE, EmbeddedBroker
from kinstream.streams.records.values import Event
from kinstream.streams.settings import Settings, load

FOLDER: Final = Path(".kinstream/demo-search")
LEARNER: Final = "search"
SETTINGS: Final = """\
# The settings of `kinstream demo search`. You can start your own settings from them.
[checkpoints]
url = "{checkpoints}"
interval_seconds = 0.25

[worker]
together = false
shutdown_seconds = 6.0

[builders.clicks]
kind = "clicks"
rules = ["click-list"]

[builders.one-pass]
kind = "one-pass"

# Lists carry BM25 as `text`. Before anything is learned, it and the similarity count half each.
[learners.search]
kind = "ranking"
from = ["clicks", "one-pass"]
start = {{ similarity = 0.5, text = 0.5 }}
remember = 10000
"""
DEADLINE_SECONDS: Final = 240.0
LOOK_SECONDS: Final = 0.25
#: How many times as long as a measurement nothing is measured after it.
MEASURES: Final = 5
#: Looks without a new model, after which all that was sent has been learned.
SETTLED_LOOKS: Final = 8
_STOPPED: Final = 130


def run(*, keep_running: bool, port: int) -> NoReturn:
    """Run it to its end, or until Ctrl-C, and end this process.

    Parameters
    ----------
    keep_running : serve the page until Ctrl-C. On a terminal it is served in any case.
    port : of the page; 0 for any that is free.
    """
    with ExitStack() as stack:
        run_with(Demonstration, PageState(), SETTINGS, stack, keep_running=keep_running, port=port)


def run_with(
    kind: type[Demonstration],
    shown: PageState,
    text: str,
    stack: ExitStack,
    *,
    keep_running: bool,
    port: int,
) -> NoReturn:
    """The same for a demonstration of this kind.

    Parameters
    ----------
    text : its settings, with a place for `checkpoints`.
    stack : closed before the agents are stopped.
    """
    lock, stopping = FolderLock(kind.folder), stop_on_signals()
    config = fresh_folder(kind.folder) / "kinstream.toml"
    # It may hold a key.
    config.touch(mode=0o600)
    config.write_text(text.format(checkpoints=(kind.folder / "checkpoints").as_posix()), encoding="utf-8")
    click.echo(NOTICE, err=True)
    # Every model is on the page.
    logging.getLogger("kinstream.follower").setLevel(logging.WARNING)
    status = 1
    try:
        page = Page(port, shown.state, shown.search, shown.click)
    except OSError as error:
        click.echo(f"--port {port} of {HOST}: {error.strerror or error}", err=True)
        end(2)
    broker = EmbeddedBroker(load(config))
    servers = broker.bootstrap_servers
    settings = load(config, {"kafka.bootstrap_servers": servers})
    system = LocalSystem(
        settings, ["--config", str(config)], {"KAFKA_BOOTSTRAP_SERVERS": servers}, kind.folder / "logs"
    )
    try:
        with QueryAdapter(SPACE, LEARNER, settings) as adapter, stack:
            demonstration = kind(system, adapter, shown, stopping, stack)
            click.echo(f"Page: {page.url}", err=True)
            status = demonstration.show(settings)
            if status == 0 and (keep_running or sys.stdout.isatty()):
                click.echo(f"Search yourself: {page.url}   Ctrl-C ends it.")
                status = demonstration.serve()
    finally:
        system.stop()
        page.close()
        broker.close()
    lock.release()
    end(status)


class PageState:
    """What the page asks for. Requests come from threads of the page."""

    def __init__(self) -> None:
        self.phase = "Starting"
        self.ndcg: list[float] = []
        self.rankings: Rankings | None = None
        self.adapter: QueryAdapter | None = None
        self.traffic: Traffic | None = None
        self._sending = threading.Lock()

    def state(self) -> dict[str, Any]:
        """Phase, figures, and the model that answers."""
        rankings, adapter = self.rankings, self.adapter
        return {
            "phase": self.phase,
            "ndcg": [round(one, 4) for one in self.ndcg],
            "ready": rankings is not None,
            "proposed": rankings.proposed() if rankings is not None else [],
            "model": "-" if adapter is None else str(adapter.current.name),
        }

    def search(self, text: str) -> dict[str, Any]:
        """All rankings of a text. Raises ValueError if it cannot be searched."""
        rankings, adapter = self.rankings, self.adapter
        if rankings is None or adapter is None:
            raise ValueError("The documentation is still being embedded.")
        asked = rankings.asked(text)
        if asked is None:
            raise ValueError("The embedder knows no part of these words.")
        return rankings.all(asked, adapter.current)

    def click(self, text: str, rows: list[int], clicked: int) -> dict[str, Any]:
        """Send a click. Raises ValueError if it is not one of what is shown."""
        rankings, traffic = self.rankings, self.traffic
        if rankings is None or traffic is None:
            raise ValueError("The agents are still starting: click again in a moment.")
        asked = rankings.asked(text)
        if asked is None or clicked not in rows or len(set(rows)) != len(rows) or not rankings.has(rows):
            raise ValueError("This click names no list that was shown.")
        with self._sending:
            traffic.visit(text, asked.vector, rows, clicked)
        return {"people": PEOPLE}


class Demonstration:
    """From embedding to the last figure.

    Attributes
    ----------
    stack : what is put there is closed before the agents are stopped.
    """

    folder: ClassVar[Path] = FOLDER
    #: Builders and learners.
    compiled: ClassVar[tuple[str, ...]] = ("ranking", "clicks", "one-pass")

    def __init__(
        self,
        system: LocalSystem,
        adapter: QueryAdapter,
        shown: PageState,
        stopping: threading.Event,
        stack: ExitStack,
    ) -> None:
        self.shown, self.stopping, self.stack, self.status = shown, stopping, stack, 0
        self._system, self._adapter = system, adapter
        self._began = time.monotonic()
        self._deadline = self._began + DEADLINE_SECONDS
        self._measured: object = None
        self._again = 0.0

    def prepare(self, settings: Settings) -> Material | None:
        """Embed, compile, and start the agents; None if it has ended before."""
        # Embedding and compiling side by side.
        compiling = self._system.start("warm-up", ["warm-up", *self.compiled, "--jobs", "1"])
        making = Making()
        shown = self.shown
        if not self.until(lambda: compiling.popen.poll() == 0, making):
            return None
        self._system.start_agents()
        if not self.until(lambda: making.made is not None, making):
            return None
        material = making.made
        assert material is not None
        # An encoder may have taken minutes.
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        shown.adapter, shown.rankings = self._adapter, Rankings(material)
        self.say("Starting the agents")
        if not self.until(lambda: len(self._system.ready()) == len(self._system.agents())):
            return None
        shown.traffic = Traffic(settings, material)
        return material

    def show(self, settings: Settings) -> int:
        """All phases; the exit status."""
        material = self.prepare(settings)
        rankings, traffic = self.shown.rankings, self.shown.traffic
        if material is None or rankings is None or traffic is None:
            return self.status
        embedded, hybrid, first = rankings.ndcg(self._adapter.current)
        figures = [first]
        self.line(
            f"NDCG@10 of {MEASURED} held-out queries: {embedded:.3f} as embedded, {hybrid:.3f} with BM25, half and half"
        )
        learned = len(material.learned)
        phases = (
            ("Streaming the catalogue", traffic.catalogue(), None),
            (
                f"Learning from {LISTS:,} lists and their clicks",
                traffic.clicks(),
                f"after {LISTS:,} lists with clicks",
            ),
            (f"Learning from {learned:,} labels", traffic.labels(), f"after {learned:,} labels"),
        )
        for title, events, text in phases:
            if not self.stream(title, events):
                return self.status
            if text is None:
                continue
            if not self.until(self._settled(traffic)):
                return self.status
            figures.append(self._figure())
            self.line(f"  {figures[-1]:.3f} {text}")
        self.say("Learned: search, click, and see the next model")
        self.line(
            f"\nNDCG@10 {embedded:.3f} as embedded -> {hybrid:.3f} with BM25 -> {figures[-1]:.3f} learned: nothing was "
            "embedded or indexed again."
        )
        return 0

    def stream(self, title: str, events: Iterator[Event]) -> bool:
        """Send events; False if the demonstration ends before."""
        self.say(title)
        assert self.shown.traffic is not None
        return all(self.goes_on() for _ in self.shown.traffic.send(events))

    def serve(self) -> int:
        """Until Ctrl-C."""
        self.allow(float("inf"))
        while self.goes_on():
            self.stopping.wait(LOOK_SECONDS)
        return 0 if self.stopping.is_set() else self.status

    def allow(self, seconds: float) -> None:
        """Give up only so much later than now."""
        self._deadline = time.monotonic() + seconds

    def until(self, done: Any, making: Making | None = None) -> bool:
        """Wait for a condition; False if the demonstration ends before."""
        while not done():
            if making is not None:
                # Raises what went wrong in its thread.
                self.say("Getting ready" if making.made else making.step)
                self._deadline = max(self._deadline, time.monotonic() + DEADLINE_SECONDS)
            if not self.goes_on():
                return False
            self.stopping.wait(LOOK_SECONDS)
        return True

    def _settled(self, traffic: Traffic) -> Any:
        """Whether all was read, and no newer model has come for a while."""
        still, before = 0, None

        def settled() -> bool:
            nonlocal still, before
            name = self._adapter.current.name
            still, before = (still + 1 if name == before and traffic.read else 0), name
            return still >= SETTLED_LOOKS

        return settled

    def goes_on(self) -> bool:
        """Whether nothing has ended the demonstration; else `status` is set."""
        if self.stopping.is_set():
            self.status = _STOPPED
            return False
        failed = self._system.failed()
        if failed is not None:
            self.status = tell_failure(failed)
            return False
        if time.monotonic() > self._deadline:
            logs = self.folder / "logs"
            click.echo(f"not finished within {DEADLINE_SECONDS:.0f} s; logs: {logs}", err=True)
            self.status = 1
            return False
        self.measure()
        return True

    def measure(self) -> None:
        """Measure a new model, if it is time."""
        model, now = self._adapter.current, time.monotonic()
        if self.shown.rankings is not None and model is not self._measured and now > self._again:
            self._measured = model
            self.shown.ndcg.append(self.shown.rankings.ndcg(model)[2])
            # Agents and traffic need the processors more.
            self._again = time.monotonic() + MEASURES * (time.monotonic() - now)

    def _figure(self) -> float:
        assert self.shown.rankings is not None
        return self.shown.rankings.ndcg(self._adapter.current)[2]

    def say(self, phase: str) -> None:
        """Show what is done now."""
        if phase != self.shown.phase:
            self.shown.phase = phase
            click.echo(f"{time.monotonic() - self._began:3.0f} s  {phase}", err=True)

    def line(self, text: str) -> None:
        """Print a figure."""
        click.echo(text)
