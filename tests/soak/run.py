"""A whole soak: start, load, faults, drain, checks."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kinstream.streams.checkpoints.manifest import versions
from kinstream.streams.topics import murmur2
from tests.crash.checker import chains, decode, read_topic, shown
from tests.crash.processes import System, running
from tests.kafka.broker import KafkaBroker
from tests.soak import alerts
from tests.soak.poison import Poisoner, letters_of, wanted_letters
from tests.soak.system import AGENTS, LEARNERS, PARTITIONS, POISON_SHARE, SETTINGS, SPACES, Stage
from tests.soak.verdict import Check, Result
from tests.soak.watch import Watch
from tests.support.processes import until

PREFIX = "soak"
LOOK_SECONDS = 5.0
DRAIN_SECONDS = 300.0


def soak(folder: Path, minutes: float, seed: int | None) -> Result:
    """Run and judge.

    Raises
    ------
    RuntimeError, TimeoutError : the system did not start, or did not come to an end.
    """
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    seconds = minutes * 60
    started = time.monotonic()
    began = time.strftime("%-d %B %Y")

    def now() -> float:
        return time.monotonic() - started

    def told(text: str) -> None:
        print(f"{now():7.0f} s  {text}", flush=True)

    told(f"seed {seed}, {minutes:g} minutes")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        system = stack.enter_context(
            running(System(folder / "system", broker.bootstrap, PREFIX, PARTITIONS, SETTINGS))
        )
        system.run("topics", "create")
        stage = Stage(system, broker, seconds, seed, now)
        watch = Watch(min(300.0, seconds / 4))
        stage.start_workers()
        stage.start_loads()
        until(
            lambda: all(max(system.offsets(agent).values()) > 0 for agent in AGENTS),
            "every agent writes checkpoints",
        )
        told("everybody is at work")
        ports = [slot.port for slot in stage.slots]
        fired = (
            stack.enter_context(alerts.watching(folder / "prometheus", ports)) if alerts.installed() else None
        )
        if fired is None:
            told("prometheus is not installed: no alert is watched")
        poison = Poisoner(
            broker.bootstrap,
            system.topic("events"),
            POISON_SHARE,
            lambda: sum(system.ends("events").values()),
            lambda key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS,
        )
        poison.start()
        stage.start_faults()
        end = now() + seconds
        last = now()
        while now() < end:
            time.sleep(LOOK_SECONDS)
            stage.check()
            stage.keep_loads()
            for slot in stage.slots:
                watch.look(slot.name, slot.process.child() if slot.process else None, now())
            if fired is not None:
                fired.look(now())
            if now() - last >= 60:
                last = now()
                told(
                    f"{len(system.kills)} kills, {len(stage.faults.outages)} outages, {len(poison.sent)} poison"
                )
        stage.stop_faults()
        stage.stop_loads()
        poison.stop(60)
        told("the load is over")
        _settle(system)
        told("all is applied")
        pages = _pages(stage)
        replays = {
            origin: json.loads(system.run(*_replay(origin, learners), seconds=60.0 + seconds))
            for origin, learners in (("constraints", LEARNERS), ("events", ("opml", "shop")))
        }
        told("replayed")
        statuses = system.stop_all(90)
        records = {
            role: read_topic(broker.bootstrap, system.topic(role))
            for role in ("events", "constraints", "outcomes", "dead-letters")
        }
        told("everybody has ended")
        checks = [
            *_end(system, statuses),
            *_replays(replays),
            *_letters(records, poison),
            _counted(records, pages),
            *_flat(watch, minutes),
            *_alerts(fired, stage),
        ]
        numbers = _numbers(records, pages, stage, poison)
        return Result(began, minutes, seed, versions(), numbers, checks, watch.verdicts())


def _settle(system: System) -> None:
    for agent in AGENTS:
        until(partial(system.settled, agent), f"{agent.application} at the end of its input", DRAIN_SECONDS)
    until(lambda: all(map(system.settled, AGENTS)), "all agents stay at the end", DRAIN_SECONDS)


def _pages(stage: Stage) -> list[str]:
    """The metrics pages, once every partition is shown."""
    pages: list[str] = []
    metrics = [slot.process for slot in stage.slots if slot.agent.role == "metrics" and slot.process]
    # Of each labelled space by those who follow its builder, and of the clicks.
    wanted = 2 * len(SPACES) + 2

    def all_shown() -> bool:
        try:
            pages[:] = stage.system.metrics_pages(metrics)
        except OSError:
            # A worker that was killed last may be starting still.
            return False
        return len(shown(pages)) == wanted

    until(all_shown, f"{wanted} series on the metrics pages", 60)
    return pages


def _replay(origin: str, learners: tuple[str, ...]) -> list[str]:
    named = [word for name in learners for word in ("--learner", name)]
    return ["replay", *named, "--from", origin, "--compare", "--json"]


# ---- the checks ------------------------------------------------------------------------------------------------------


def _end(system: System, statuses: dict[str, int] | Any) -> Iterator[Check]:
    wrong = {name: status for name, status in statuses.items() if status != 0}
    yield Check(
        "every worker ends in order", not wrong, f"{len(statuses)} ended" if not wrong else str(wrong)
    )
    left = system.left()
    yield Check("no process is left", not left, ", ".join(map(str, left)) or "none")


def _replays(replays: dict[str, Any]) -> Iterator[Check]:
    for origin, told in replays.items():
        verdicts = [c["verdict"] for c in told["comparisons"]]
        wrong = [c for c in told["comparisons"] if c["verdict"] != "equal"]
        found = f"{len(verdicts)} states equal" if verdicts and not wrong else json.dumps(wrong[:3])
        yield Check(f"the final state equals a replay from {origin}", bool(verdicts) and not wrong, found)


def _letters(records: dict[str, Any], poison: Poisoner) -> Iterator[Check]:
    wanted = wanted_letters(records["events"], poison.sent)
    found = letters_of(records["dead-letters"])
    missing, more = wanted - found.keys(), found.keys() - wanted
    split = [key for key, rows in found.items() if len(set(rows)) > 1]
    again = sum(len(rows) - 1 for rows in found.values())
    told = f"{len(poison.sent)} records, {len(wanted)} letters, {again} written again after a kill and told apart"
    yield Check(
        "every poison record is refused exactly once by everybody who reads it",
        bool(wanted) and not missing and not split,
        told if not missing and not split else f"missing {sorted(missing)[:3]}, split {split[:3]}",
    )
    yield Check("nothing else is refused", not more, str(sorted(more)[:3]) if more else "nothing")


def _counted(records: dict[str, Any], pages: list[str]) -> Check:
    """The counters of the metrics agent against the log of outcomes, read without the code under test."""
    totals: dict[tuple[str, str], dict[str, float]] = {}
    for (emitter, space), outputs in chains(records["outcomes"]).taken.items():
        counts = totals.setdefault((space, emitter), {})
        for made in outputs:
            for name, value in decode(made.record.value)[1]["counts"].items():
                counts[name] = counts.get(name, 0.0) + value
    on_page = {
        key: {name: value for name, value in counts.items() if name != "loss_sum"}
        for key, counts in shown(pages).items()
    }
    wanted = {key: {n: counts.get(n, 0.0) for n in on_page.get(key, {})} for key, counts in totals.items()}
    seen = int(sum(counts["seen"] for counts in totals.values()))
    return Check(
        "every constraint is counted exactly once by the metrics agent",
        bool(seen) and wanted == on_page,
        f"{seen:,} constraints" if wanted == on_page else f"{wanted} in the log, {on_page} on the page",
    )


def _flat(watch: Watch, minutes: float) -> Iterator[Check]:
    verdicts = watch.verdicts()
    growing = [one.name for one in verdicts if one.leaks]
    rises = [one.memory.rise / 1e6 for one in verdicts]
    files = [one.files.rise for one in verdicts]
    told = (
        f"{len(verdicts)} processes; memory {min(rises):+.1f} to {max(rises):+.1f} MB, files {min(files):+.0f} to "
        f"{max(files):+.0f}, over what was watched"
        if verdicts
        else f"{minutes:g} minutes are too short to say"
    )
    # A run for a look has no process that lives long enough.
    yield Check("memory and open files stay flat", not growing and (bool(verdicts) or minutes < 10), told)


def _alerts(fired: alerts.Watch | None, stage: Stage) -> Iterator[Check]:
    if fired is None:
        return
    refusing = [agent.application for agent in AGENTS if agent.role == "builder"]
    false = alerts.false_ones(fired.fired, stage.faults.kills, refusing)
    names = sorted({f"{one.name} ({one.severity}, {one.agent})" for one in fired.fired})
    told = (
        f"asked {fired.asked} times; with cause: {', '.join(names) or 'none'}"
        if not false
        else "; ".join(false)
    )
    yield Check("no alert fires without a cause", bool(fired.asked) and not false, told)


def _numbers(
    records: dict[str, Any], pages: list[str], stage: Stage, poison: Poisoner
) -> dict[str, int | float | str]:
    away = [length for _, length in stage.faults.outages]
    return {
        "events": len(records["events"]),
        "constraint blocks": len(records["constraints"]),
        "outcomes": len(records["outcomes"]),
        "poison records": len(poison.sent),
        "share of poison": f"{len(poison.sent) / len(records['events']):.2%}",
        "kills of workers (half of them with their supervisor)": sum(map(len, stage.faults.kills.values())),
        "stops and kills of the broker": len(away),
        "seconds without a broker": round(sum(away)),
        "outputs written again after a kill, and told apart": sum(
            chains(records[role]).duplicates.total() for role in ("constraints", "outcomes")
        ),
        **{
            f"mistakes of {learner} in {space}": f"{counts['mistakes'] / counts['scored']:.1%}"
            for (space, learner), counts in sorted(shown(pages).items())
        },
    }
