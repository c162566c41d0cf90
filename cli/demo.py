"""`kinstream demo` (`make run`): the main job on the embedded broker, with real data that scikit-learn ships."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    import threading

    from rich.table import Table

    from cli.local_system import LocalSystem, Process
    from cli.scrape import Numbers

FOLDER: Final = Path(".kinstream/demo")
#: The whole demonstration gives up after this, and says what stands still.
DEADLINE_SECONDS: Final = 150.0
DATA_SET: Final = "digits"
SPACE: Final = "digits"
HOLD_OUT: Final = 0.3
SEED: Final = 1
#: Looks, half a second apart, longer than the checkpoint interval: the newest checkpoints then hold everything.
SETTLED_LOOKS: Final = 4
SETTINGS: Final = """\
# What `kinstream demo` runs. Use it as a beginning for your own.
[checkpoints]
url = "{checkpoints}"
interval_seconds = 1.0

[worker]
shutdown_seconds = 6.0

[metrics]
window = 250

[builders.one-pass]
kind = "one-pass"

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.001
scaler = "zscore"

[learners.copml]
kind = "copml"
from = ["one-pass"]
scaler = "zscore"
"""


@click.command()
@click.option("--keep-running", is_flag=True, help="Leave the agents up at the end, until Ctrl-C.")
@click.option("--rate", default=400.0, show_default=True, help="Rows a second.")
@click.option("--repeat", default=3, show_default=True, help="Passes over the data.")
def demo(keep_running: bool, rate: float, repeat: int) -> None:
    """Learn handwritten digits on the embedded broker and show what came of it.

    Example: kinstream demo --keep-running
    """
    from cli.local_system import LocalSystem
    from cli.up import stop_on_signals
    from learners.warm_up import warm_up
    from streams.embedded import NOTICE, EmbeddedBroker
    from streams.settings import load

    stopping = stop_on_signals()
    folder = _fresh_folder()
    config = folder / "kinstream.toml"
    config.write_text(SETTINGS.format(checkpoints=(folder / "checkpoints").as_posix()))
    settings = load(config)
    click.echo(NOTICE, err=True)
    warm_up()
    broker = EmbeddedBroker(settings)
    environment = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    system = LocalSystem(settings, ["--config", str(config)], environment, folder / "logs")
    status = 1
    try:
        system.start_agents()
        status = _run(system, stopping, rate, repeat)
        if status == 0 and keep_running:
            _summary(settings, folder, system)
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
        _summary(settings, folder, system)
    sys.stdout.flush()
    # The broker's threads live in this process; nothing of theirs is wanted any more.
    os._exit(status)


def _fresh_folder() -> Path:
    """A folder for this run. The embedded broker forgets its log, so checkpoints of an earlier run are of no use."""
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir(parents=True)
    return FOLDER


def _run(system: LocalSystem, stopping: threading.Event, rate: float, repeat: int) -> int:
    from rich.live import Live

    from cli.scrape import Numbers, look

    deadline = time.monotonic() + DEADLINE_SECONDS
    view = _View(system)
    producer: Process | None = None
    with Live(view.render(Numbers()), refresh_per_second=4) as live:
        while not stopping.wait(0.5):
            failed = system.failed()
            if failed is not None:
                return _tell_failure(failed)
            if time.monotonic() > deadline:
                click.echo(f"not finished within {DEADLINE_SECONDS:.0f} s; logs: {FOLDER / 'logs'}", err=True)
                return 1
            if producer is None and len(system.ready()) == len(system.agents()):
                producer = system.start("producer", _produce(rate, repeat))
            numbers = look(system.agents())
            view.take(numbers)
            live.update(view.render(numbers))
            if producer is not None and producer.popen.poll() == 0 and view.settled:
                return 0
    return 130


def _produce(rate: float, repeat: int) -> list[str]:
    options = {
        "--space": SPACE,
        "--rate": rate,
        "--repeat": repeat,
        "--shuffle-seed": SEED,
        "--hold-out": HOLD_OUT,
    }
    options |= {"--hold-out-seed": SEED, "--block-rows": 32, "--max-backlog": 64}
    return [
        "produce",
        "labelled",
        f"sklearn:{DATA_SET}",
        *(str(word) for pair in options.items() for word in pair),
    ]


def _tell_failure(process: Process) -> int:
    from cli.local_system import tail

    click.echo(f"{process.name} ended with status {process.popen.returncode}; {process.log}:", err=True)
    click.echo(tail(process.log), err=True)
    return 1


class _View:
    """The live table, and the judgement whether all that was sent has arrived everywhere."""

    def __init__(self, system: LocalSystem) -> None:
        self._system = system
        self._before: tuple[float, dict[str, float | None]] | None = None
        self._rates: dict[str, float] = {}
        self._still = 0

    def take(self, numbers: Numbers) -> None:
        """Note one look: rates, and for how many looks nothing has moved."""
        now = time.monotonic()
        if self._before is not None:
            then, old = self._before
            for name, applied in numbers.applied.items():
                before = old.get(name)
                if applied is not None and before is not None:
                    rate = (applied - before) / (now - then)
                    self._rates[name] = (self._rates.get(name, rate) + rate) / 2
            quiet = all(lag == 0 for lag in numbers.lag.values()) and numbers.applied == old
            self._still = self._still + 1 if quiet else 0
        self._before = (now, numbers.applied)

    @property
    def settled(self) -> bool:
        """Whether there was neither lag nor change for several looks in a row."""
        return self._still >= SETTLED_LOOKS

    def render(self, numbers: Numbers) -> Table:
        """The table as it stands."""
        from rich.box import SIMPLE
        from rich.table import Table

        # Narrow enough for 80 columns with the names in full.
        table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in ("agent", "records", "per s", "lag", "constraints", "mistake rate", "utilisation"):
            table.add_column(heading, no_wrap=True)
        table.title = f"kinstream: {DATA_SET} on the embedded broker"
        for process in self._system.agents():
            applied = numbers.applied.get(process.name)
            learned = numbers.learners.get(process.name.removeprefix("learner-"))
            table.add_row(
                process.name,
                "starting" if applied is None else f"{applied:.0f}",
                f"{self._rates.get(process.name, 0.0):.0f}",
                _whole(numbers.lag.get(process.name)),
                "" if learned is None else _whole(learned.seen),
                "" if learned is None else _share(learned.mistake_rate),
                "" if learned is None else _share(learned.utilisation),
            )
        return table


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _summary(settings: Any, folder: Path, system: LocalSystem) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from replay.held_out import evaluate

    result = evaluate(settings, f"sklearn:{DATA_SET}", SPACE, hold_out=HOLD_OUT, seed=SEED)
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("metric", "5-NN error", "constraints", "utilised", "mistakes", "mistake rate"):
        table.add_column(heading, no_wrap=True)
    table.caption = "'euclidean, zscore': the scaler of the learned metrics, nothing learned"
    table.title = f"{result.train_rows} rows streamed, error on {result.test_rows} rows never streamed"
    for row in result.rows:
        counts = row.counts
        table.add_row(
            row.name,
            f"{row.error:.4f}",
            "" if counts is None else str(counts.seen),
            "" if counts is None else str(counts.utilised),
            "" if counts is None else str(counts.mistakes),
            "" if counts is None or not counts.scored else f"{counts.mistakes / counts.scored:.3f}",
        )
    console = Console()
    # The live table leaves its last line open where the output is no terminal.
    console.print()
    console.print(table)
    command = f"{_own_name()} --config {folder / 'kinstream.toml'} models"
    # Not wrapped: these lines are there to be copied.
    for line in (
        f"Checkpoints: {folder / 'checkpoints'}",
        f"Settings:    {folder / 'kinstream.toml'}",
        f"Logs:        {folder / 'logs'}",
        "To query the checkpoints:",
        f"  {command} list --checkpoints",
        f"  {command} export {SPACE} --learner opml --checkpoints -o map.npz",
    ):
        click.echo(line)


def _own_name() -> str:
    """What to type to run this command again: `make run` puts nothing on the PATH."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return called.name
    return os.path.relpath(called)
