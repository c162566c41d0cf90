"""Runs the demonstration of search: broker, agents, traffic, figures and the page."""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from kinstream.cli.demo.search.material import Making
from kinstream.cli.demo.search.page import HOST, Page
from kinstream.cli.demo.search.rankings import MEASURED, Rankings
from kinstream.cli.demo.search.traffic import LISTS, PEOPLE, SPACE, Traffic
from kinstream.cli.local.ending import end, fresh_folder, tell_failure
from kinstream.cli.local.folder_lock import FolderLock
from kinstream.cli.local.system import LocalSystem, stop_on_signals
from kinstream.search.queries.adapter import QueryAdapter
from kinstream.streams.kafka.embedded_broker import NOTICE, EmbeddedBroker
from kinstream.streams.settings import load

FOLDER: Final = Path(".kinstream/demo-search")
LEARNER: Final = "search"
SETTINGS: Final = """\
# The settings of `kinstream demo search`. You can start your own settings from them.
[checkpoints]
url = "{checkpoints}"
interval_seconds = 0.25

[worker]
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
    lock, stopping = FolderLock(FOLDER), stop_on_signals()
    config = fresh_folder(FOLDER) / "kinstream.toml"
    text = SETTINGS.format(checkpoints=(FOLDER / "checkpoints").as_posix())
    config.write_text(text, encoding="utf-8")
    click.echo(NOTICE, err=True)
    # Every model is on the page.
    logging.getLogger("kinstream.follower").setLevel(logging.WARNING)
    status = 1
    shown = PageState()
    try:
        page = Page(port, shown.state, shown.search, shown.click)
    except OSError as error:
        click.echo(f"--port {port} of {HOST}: {error.strerror or error}", err=True)
        end(2)
    broker = EmbeddedBroker(load(config))
    servers = broker.bootstrap_servers
    settings = load(config, {"kafka.bootstrap_servers": servers})
    system = LocalSystem(
        settings, ["--config", str(config)], {"KAFKA_BOOTSTRAP_SERVERS": servers}, FOLDER / "logs"
    )
    try:
        with QueryAdapter(SPACE, LEARNER, settings) as adapter:
            demonstration = _Demonstration(system, adapter, shown, stopping)
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


class _Demonstration:
    """From embedding to the last figure."""

    def __init__(
        self, system: LocalSystem, adapter: QueryAdapter, shown: PageState, stopping: threading.Event
    ) -> None:
        self._system, self._adapter, self._shown, self._stopping = system, adapter, shown, stopping
        self._began = time.monotonic()
        self._deadline = self._began + DEADLINE_SECONDS
        self._measured: object = None
        self._again = 0.0
        self._status = 0

    def show(self, settings: Any) -> int:
        """All phases; the exit status."""
        # Embedding and compiling side by side.
        compiling = self._system.start("warm-up", ["warm-up", "ranking", "clicks", "one-pass", "--jobs", "1"])
        making = Making()
        shown = self._shown
        if not self._until(lambda: compiling.popen.poll() == 0, making):
            return self._status
        self._system.start_agents()
        if not self._until(lambda: making.made is not None, making):
            return self._status
        material = making.made
        assert material is not None
        # An encoder may have taken minutes.
        self._deadline = time.monotonic() + DEADLINE_SECONDS
        rankings = Rankings(material)
        shown.adapter, shown.rankings = self._adapter, rankings
        self._say("Starting the agents")
        if not self._until(lambda: len(self._system.ready()) == len(self._system.agents())):
            return self._status
        shown.traffic = traffic = Traffic(settings, material)
        embedded, hybrid, first = rankings.ndcg(self._adapter.current)
        figures = [first]
        self._line(
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
            self._say(title)
            for _ in traffic.send(events):
                if not self._goes_on():
                    return self._status
            if text is None:
                continue
            if not self._until(self._settled(traffic)):
                return self._status
            figures.append(self._figure())
            self._line(f"  {figures[-1]:.3f} {text}")
        self._say("Learned: search, click, and see the next model")
        self._line(
            f"\nNDCG@10 {embedded:.3f} as embedded -> {hybrid:.3f} with BM25 -> {figures[-1]:.3f} learned: nothing was "
            "embedded or indexed again."
        )
        return 0

    def serve(self) -> int:
        """Until Ctrl-C."""
        self._deadline = float("inf")
        while self._goes_on():
            self._stopping.wait(LOOK_SECONDS)
        return 0 if self._stopping.is_set() else self._status

    def _until(self, done: Any, making: Making | None = None) -> bool:
        """Wait for a condition; False if the demonstration ends before."""
        while not done():
            if making is not None:
                # Raises what went wrong in its thread.
                self._say("Getting ready" if making.made else making.step)
                self._deadline = max(self._deadline, time.monotonic() + DEADLINE_SECONDS)
            if not self._goes_on():
                return False
            self._stopping.wait(LOOK_SECONDS)
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

    def _goes_on(self) -> bool:
        if self._stopping.is_set():
            self._status = _STOPPED
            return False
        failed = self._system.failed()
        if failed is not None:
            self._status = tell_failure(failed)
            return False
        if time.monotonic() > self._deadline:
            logs = FOLDER / "logs"
            click.echo(f"not finished within {DEADLINE_SECONDS:.0f} s; logs: {logs}", err=True)
            self._status = 1
            return False
        model, now = self._adapter.current, time.monotonic()
        if self._shown.rankings is not None and model is not self._measured and now > self._again:
            self._measured = model
            self._shown.ndcg.append(self._shown.rankings.ndcg(model)[2])
            # Agents and traffic need the processors more.
            self._again = time.monotonic() + MEASURES * (time.monotonic() - now)
        return True

    def _figure(self) -> float:
        assert self._shown.rankings is not None
        return self._shown.rankings.ndcg(self._adapter.current)[2]

    def _say(self, phase: str) -> None:
        if phase != self._shown.phase:
            self._shown.phase = phase
            click.echo(f"{time.monotonic() - self._began:3.0f} s  {phase}", err=True)

    def _line(self, text: str) -> None:
        click.echo(text)
