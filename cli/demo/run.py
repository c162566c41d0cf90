"""Runs a demonstration: broker, agents and producer as processes, a live view, and a summary at the end."""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NoReturn

import click
from rich.live import Live

from kinstream.cli.compiling import compile_together
from kinstream.cli.demo.descriptions import Demo
from kinstream.cli.demo.summary import tell_summary
from kinstream.cli.demo.view import LiveTable
from kinstream.cli.local.ending import end, fresh_folder, tell_failure
from kinstream.cli.local.folder_lock import FolderLock
from kinstream.cli.local.metrics_pages import Numbers, read_pages
from kinstream.cli.local.system import LocalSystem, Process, stop_on_signals
from kinstream.cli.shared.agents import agent_spec
from kinstream.cli.views.tables import for_a_person
from kinstream.learners.warm_up import part
from kinstream.streams.kafka.embedded_broker import NOTICE, EmbeddedBroker
from kinstream.streams.settings import Settings, load

#: The demonstration gives up after this time.
DEADLINE_SECONDS: Final = 150.0
#: If compiling takes longer than this, it is the first time, and a message is printed.
_PATIENCE_SECONDS: Final = 2.0
_STOPPED: Final = 130


def run(demo: Demo, *, keep_running: bool) -> NoReturn:
    """Run it to its end, or until Ctrl-C, and end this process.

    Parameters
    ----------
    keep_running : keep the agents running at the end, until Ctrl-C.
    """
    lock = FolderLock(demo.folder)
    stopping = stop_on_signals()
    config = fresh_folder(demo.folder) / "kinstream.toml"
    text = demo.settings.format(checkpoints=(demo.folder / "checkpoints").as_posix())
    config.write_text(text, encoding="utf-8")
    settings = load(config)
    click.echo(NOTICE, err=True)
    if not _compiled(settings, stopping):
        end(_STOPPED)
    broker = EmbeddedBroker(settings)
    environment = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    system = LocalSystem(settings, ["--config", str(config)], environment, demo.folder / "logs")
    view = LiveTable(system, demo)
    status = 1
    try:
        system.start_agents()
        status = _watch(demo, system, view, stopping)
        if status == 0 and keep_running:
            tell_summary(demo, settings, view.numbers)
            page = next(p for p in system.agents() if p.name == "metrics")
            click.echo(
                f"\nStill running. Prometheus: {page.url}/metrics   Brokers: {broker.bootstrap_servers}"
            )
            click.echo("Ctrl-C ends it.")
            stopping.wait()
    finally:
        system.stop()
        broker.close()
    if status == 0 and not keep_running:
        tell_summary(demo, settings, view.numbers)
    lock.release()
    end(status)


def _compiled(settings: Settings, stopping: threading.Event) -> bool:
    """Compile what the agents need, once for all of them; False if it was stopped early."""
    roles = [("builder", name) for name in settings.builders]
    roles += [("learner", name) for name in settings.learners]
    tasks = [agent_spec(settings, role, name).warm_up for role, name in roles]
    wanted = [
        found for one in settings.learners.values() if (found := part(one.kind, one.arguments())) is not None
    ]
    failed: list[BaseException] = []

    def compile_all() -> None:
        try:
            for task in dict.fromkeys(tasks):
                task()
        except BaseException as error:
            failed.append(error)

    # In a thread, because Ctrl-C must also end this at once.
    thread = threading.Thread(target=compile_all, daemon=True)
    thread.start()
    began, enough = time.monotonic(), threading.Event()
    # The other processes compile from the other end of the list.
    others = (os.cpu_count() or 1) - 1
    beside = threading.Thread(target=compile_together, args=(wanted[::-1], others, enough))
    try:
        while thread.is_alive():
            if stopping.wait(0.05):
                return False
            if beside.ident is None and others and time.monotonic() - began > _PATIENCE_SECONDS:
                click.echo("compiling kernels: the first time this takes up to a minute", err=True)
                beside.start()
    finally:
        enough.set()
        if beside.ident is not None:
            beside.join()
    if failed:
        raise failed[0]
    return True


def _watch(demo: Demo, system: LocalSystem, view: LiveTable, stopping: threading.Event) -> int:
    deadline = time.monotonic() + DEADLINE_SECONDS
    producer: Process | None = None
    shown: AbstractContextManager[Live | None] = (
        Live(view.render(Numbers()), refresh_per_second=4) if for_a_person() else nullcontext()
    )
    with shown as live:
        while not stopping.wait(0.5):
            failed = system.failed()
            if failed is not None:
                return tell_failure(failed)
            if time.monotonic() > deadline:
                logs = demo.folder / "logs"
                click.echo(f"not finished within {DEADLINE_SECONDS:.0f} s; logs: {logs}", err=True)
                return 1
            if producer is None and len(system.ready()) == len(system.agents()):
                producer = system.start("producer", demo.producer)
            # Taken before reading the pages: a page may be a second old, and shows no lag before the first record.
            sent = producer is not None and producer.popen.poll() == 0
            numbers = read_pages(system.agents())
            view.take(numbers, sent=sent)
            if live is not None:
                live.update(view.render(numbers))
            if view.settled:
                break
        else:
            return _STOPPED
    if not for_a_person():
        click.echo("\n".join(view.lines()))
    return 0
