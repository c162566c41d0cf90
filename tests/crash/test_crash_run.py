"""The system's main test: a run under crashes ends in what an undisturbed run ends in.

Real processes on a real Kafka: producers, two builders, two learners and the metrics agent, two workers each. They are
killed, frozen, replaced and killed at every dangerous place, drawn from a printed seed. Afterwards an independent
checker reads the topics, the checkpoints and the metrics pages, and compares them with

- what the one-pass rule makes of the rows that were given,
- an undisturbed run of one worker for each agent on the same events,
- a replay of the same constraints through the learners' machines in one process.

`opml` follows one builder, so its outcomes are a function of the events, and equal those of the undisturbed run.
`copml` follows two, whose interleaving is known to the constraints alone: it is compared with the replay.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.crash.checker import (
    Found,
    SavedSpace,
    Wanted,
    chains,
    check_models,
    check_run,
    digest,
    read_checkpoints,
    read_topic,
    shown,
)
from tests.crash.data import make
from tests.crash.processes import Agent, System, copy_topic, running
from tests.crash.storm import FAIL, FREEZE, Load, Plan, Storm
from tests.kafka.broker import KafkaBroker
from tests.support.processes import SECONDS, Process, until

PARTITIONS = 3
SESSION_SECONDS = 6.0
#: The newest model is compared with the newest checkpoint. By default, one that is worse than no learning on held-out
#: events is not announced, and the rows of some seeds make such models.
SETTINGS = f"""
[builders.one-pass]
kind = "one-pass"
seed = 3

[builders.official]
kind = "one-pass"
negatives = "official"

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
publish = "always"

[learners.copml]
kind = "copml"
from = ["one-pass", "official"]
gamma2 = 0.001
dtype = "float32"
scaler = "zscore"
publish = "always"

[checkpoints]
interval_seconds = 1.0

[worker]
session_timeout_seconds = {SESSION_SECONDS}
"""
BUILDERS = {"one-pass": 3, "official": None}
LEARNERS = {"opml": ("one-pass",), "copml": ("one-pass", "official")}
AGENTS = (
    Agent("builder", "one-pass", "events"),
    Agent("builder", "official", "events"),
    Agent("learner", "opml", "constraints"),
    Agent("learner", "copml", "constraints"),
    Agent("metrics", None, "outcomes"),
)
#: Runs all of them; the last of the chain moves only after the others.
ALL = Agent("metrics", None, "outcomes", together=True)
SENT = f"{FAIL}agent.after-send-before-ack=kill@12"
FLUSHED = f"{FAIL}agent.after-flush-before-manifest=kill@2"
MANIFEST = f"{FAIL}checkpoint.before-manifest=kill@3"
WRITTEN = f"{FAIL}checkpoint.after-manifest=kill@2"
BETWEEN = f"{FAIL}checkpoint.between-space-files=kill@3"
RESTORED = f"{FAIL}checkpoint.during-restore=kill"
PRUNED = f"{FAIL}checkpoint.during-prune=kill@2"
PRODUCED = "producer.after-send-before-ack=kill@9"

ACTS = {
    "builder-one-pass": [SENT, FREEZE, "both"],
    "builder-official": [FLUSHED, PRUNED, "worker"],
    "learner-opml": [BETWEEN, "supervisor", "worker"],
    "learner-copml": [RESTORED, MANIFEST, "both"],
    "metrics": [WRITTEN, FREEZE, "worker"],
}


def _seed() -> int:
    """Of the kills: KINSTREAM_SEED, or drawn."""
    given = os.environ.get("KINSTREAM_SEED")
    return int(given) if given else random.SystemRandom().randrange(2**32)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_many_crashes_change_nothing(own_kafka: KafkaBroker, tmp_path: Path) -> None:
    _crash(own_kafka, tmp_path, AGENTS, rows=60_500, constraints=60_000, kills=20, slow_seconds=300.0)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_many_crashes_of_all_agents_in_one_process_change_nothing(
    own_kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Two such processes share the partitions; the undisturbed run has a process for each agent."""
    _crash(own_kafka, tmp_path, (ALL,), rows=20_500, constraints=20_000, kills=8, slow_seconds=600.0)


def _crash(
    own_kafka: KafkaBroker,
    tmp_path: Path,
    agents: Sequence[Agent],
    *,
    rows: int,
    constraints: int,
    kills: int,
    slow_seconds: float,
) -> None:
    seed = _seed()
    print(f"KINSTREAM_SEED={seed}")
    made = make(rows, seed)
    acts = {name: random.Random(f"{seed} {name}").sample(some, len(some)) for name, some in ACTS.items()}
    if ALL in agents:
        acts[ALL.application] = [acts[name][0] for name in ACTS] + [FREEZE]
    plan = Plan(
        acts,
        2,
        PRODUCED,
        slow_seconds=slow_seconds,
        fast_seconds=12.0,
        frozen_seconds=SESSION_SECONDS + 3,
    )
    began = time.monotonic()
    files = [Load(some.space, some.save(tmp_path), len(some)) for some in made]
    wanted = Wanted({some.space: (some.vectors, some.labels.tolist()) for some in made}, BUILDERS, LEARNERS)
    with running(System(tmp_path / "rough", own_kafka.bootstrap, "crash", PARTITIONS, SETTINGS)) as rough:
        rough.run("topics", "create")
        storm = Storm(rough, agents, files, seed)
        storm.run(plan)
        _told("the storm is over", began)
        _settle(rough)
        pages = pages_of(rough, storm.workers[agents[-1]], len(LEARNERS) * len(storm.loads))
        rough.end()
        _told("all is applied, and all have ended", began)
        found = check_run(own_kafka.bootstrap, "crash", wanted)
        models = read_topic(own_kafka.bootstrap, rough.topic("models"))
        for learner in LEARNERS:
            check_models(models, learner, _saved(rough, f"learner-{learner}", rough.topic("constraints")))
        _told(f"checked: {found.numbers} constraints, written again: {found.again}", began)
        assert min(found.numbers.values()) >= constraints
        assert all(sums["utilised"] > 0 < sums["mistakes"] for sums in found.totals.values()), found.totals
        at_work = [kill for kill in rough.kills if kill.at_work]
        assert len(at_work) >= kills, f"only {len(at_work)} kills hit a system at work"
        assert shown(pages) == found.totals
        assert not (faults := rough.faults()), "\n".join(faults)
        _compare_with_calm(own_kafka, tmp_path / "calm", rough, wanted, found)
        _told("the undisturbed run ends in the same", began)
        _compare_with_replay(own_kafka, tmp_path / "replayed", rough, found)
        _told("the replay ends in the same", began)


def _told(what: str, began: float) -> None:
    print(f"{time.monotonic() - began:.0f} s: {what}", flush=True)


def _settle(system: System) -> None:
    """Wait until every agent's checkpoints cover its input, in the order of the stream."""
    for agent in AGENTS:
        told = f"{agent.application} comes to the end of {system.ends(agent.reads)}"
        until(partial(system.settled, agent), told)
    until(lambda: all(system.settled(agent) for agent in AGENTS), "all agents stay at the end")


def pages_of(system: System, metrics: list[Process], series: int) -> list[str]:
    """The pages of the metrics workers, once they show counters of so many learners and spaces."""
    pages: list[str] = []

    def all_shown() -> bool:
        try:
            pages[:] = system.metrics_pages(metrics)
        except OSError:
            # The worker that the storm ended last covers nothing and is not waited for: it may be starting still.
            return False
        return len(shown(pages)) == series

    until(all_shown, f"{series} series on the metrics pages", 60)
    return pages


def _compare_with_calm(
    broker: KafkaBroker, folder: Path, rough: System, wanted: Wanted, found: Found
) -> None:
    """The same events, through one worker of each agent and without any kill."""
    with running(System(folder, broker.bootstrap, f"{rough.prefix}calm", PARTITIONS, SETTINGS)) as calm:
        calm.run("topics", "create")
        events = read_topic(broker.bootstrap, rough.topic("events"))
        copy_topic(
            broker.bootstrap,
            ((r.key, r.value, r.partition, r.headers) for r in events),
            calm.topic("events"),
        )
        metrics = [calm.start_worker(agent) for agent in AGENTS][-1]
        _settle(calm)
        until(lambda: len(shown(calm.metrics_pages([metrics]))) == len(found.totals), "all series", 30)
        calm.end()
        assert not (faults := calm.faults()), "\n".join(faults)
        other = check_run(broker.bootstrap, calm.prefix, wanted)
    assert found.constraints == other.constraints
    alone = [name for name, follows in LEARNERS.items() if len(follows) == 1]
    for key in found.contents:
        if key[0] in alone:
            assert found.contents[key] == other.contents[key], f"outcomes of {key} differ"
            assert found.totals[key[::-1]] == other.totals[key[::-1]]
    for builder in BUILDERS:
        mine, theirs = (_saved(s, f"builder-{builder}", s.topic("events")) for s in (rough, calm))
        assert {name: space.whole for name, space in mine.items()} == {
            name: space.whole for name, space in theirs.items()
        }
    for learner in alone:
        mine, theirs = (_saved(s, f"learner-{learner}", s.topic("constraints")) for s in (rough, calm))
        assert mine.keys() == theirs.keys() == wanted.sent.keys()
        for space, saved in mine.items():
            assert any(isinstance(value[-1], bytes) for value in saved.core.values()), (
                "a model without tensors"
            )
            assert (saved.core, saved.facts) == (theirs[space].core, theirs[space].facts), (
                f"{learner} {space}"
            )


def _compare_with_replay(broker: KafkaBroker, folder: Path, rough: System, found: Found) -> None:
    """The same constraints, through the machines of both learners in one process."""
    with running(System(folder, broker.bootstrap, f"{rough.prefix}again", PARTITIONS, SETTINGS)) as again:
        again.run("topics", "create")
        arguments = [str(again.file), str(again.root), rough.prefix, again.prefix]
        command = [sys.executable, "-m", "tests.crash.replays", *arguments]
        subprocess.run(command, check=True, timeout=SECONDS)
        outcomes = chains(read_topic(broker.bootstrap, again.topic("outcomes")))
        assert {key: digest(taken, True) for key, taken in outcomes.taken.items()} == found.outcomes
        for learner in LEARNERS:
            mine, theirs = (
                _saved(s, f"learner-{learner}", rough.topic("constraints")) for s in (rough, again)
            )
            assert {name: space.whole for name, space in mine.items()} == {
                name: space.whole for name, space in theirs.items()
            }


def _saved(system: System, application: str, topic: str) -> Mapping[str, SavedSpace]:
    return read_checkpoints(system.root, application, topic, PARTITIONS)
