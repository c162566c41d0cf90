"""Sources, and builders that join events with a catalogue, under crashes: they end in what an undisturbed run ends in.

Real processes on a real Kafka: producers of items, clicks and relations, three sources, two workers each of the
click-preference builder, the closure builder, OASIS that follows the clicks, LEGO that follows the closure, LEGO that
follows both, and the metrics agent. The sources read topics of other systems: one is written in transactions, one is
compacted, one has the times of clients whose clocks are wrong. Which relation comes before which item is decided by the
race of the producers, so the undisturbed run reads a copy of the same events. How the blocks of two builders interleave
is known to the constraints alone: the learner that follows both is compared with a replay of the constraints. Both
replays are the commands of the README.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.crash.checker import (
    COUNTS,
    SPLIT_COUNTS,
    Record,
    chains,
    decode,
    digest,
    read_checkpoints,
    read_topic,
    require,
    shown,
)
from tests.crash.foreign import NAMES, SOURCES, SPACE, Foreign
from tests.crash.foreign import SETTINGS as FOREIGN_SETTINGS
from tests.crash.join_data import Given, make
from tests.crash.processes import Agent, System, copy_topic, running
from tests.crash.storm import FAIL, FREEZE, Load, Plan, Storm
from tests.crash.test_crash_run import PARTITIONS, SESSION_SECONDS, _seed, _told, pages_of
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

SETTINGS = f"""
[builders.clicks]
kind = "clicks"
rules = ["click-skip-above", "co-click"]
co_click_support = 1

[builders.closure]
kind = "closure"

[learners.oasis]
kind = "oasis"
from = ["clicks"]
unranked_lists = true

[learners.lego]
kind = "lego"
from = ["closure"]

[learners.both]
kind = "lego"
from = ["clicks", "closure"]
unranked_lists = true

[checkpoints]
interval_seconds = 1.0

[worker]
session_timeout_seconds = {SESSION_SECONDS}
{FOREIGN_SETTINGS.format(prefix="join")}"""
BUILDERS = (Agent("builder", "clicks", "events"), Agent("builder", "closure", "events"))
#: Whose outcomes are a function of the events.
LEARNERS = (Agent("learner", "oasis", "constraints"), Agent("learner", "lego", "constraints"))
BOTH = Agent("learner", "both", "constraints")
METRICS = Agent("metrics", None, "outcomes")
AGENTS = (*BUILDERS, *LEARNERS, BOTH, METRICS)
ACTS = {
    "builder-clicks": [
        f"{FAIL}agent.after-send-before-ack=kill@12",
        f"{FAIL}checkpoint.during-restore=kill",
        f"{FAIL}checkpoint.between-space-files=kill@4",
    ],
    "builder-closure": [
        f"{FAIL}agent.after-flush-before-manifest=kill@2",
        f"{FAIL}checkpoint.during-prune=kill@2",
        "supervisor",
    ],
    "learner-oasis": ["worker"],
    "learner-lego": [f"{FAIL}checkpoint.before-manifest=kill@2", "both"],
    "learner-both": [f"{FAIL}agent.after-send-before-ack=kill@12", "worker"],
    "metrics": ["both"],
    "source-searches": [f"{FAIL}agent.after-send-before-ack=kill@12", "worker"],
    "source-products": [f"{FAIL}checkpoint.before-manifest=kill@2", "both"],
    "source-insights": [f"{FAIL}agent.after-flush-before-manifest=kill@2", FREEZE],
}
PRODUCED = "producer.after-send-before-ack=kill@5"


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(900)
def test_crashes_change_nothing_of_what_clicks_and_relations_become(
    own_kafka: KafkaBroker, tmp_path: Path
) -> None:
    seed = _seed()
    print(f"KINSTREAM_SEED={seed}")
    began = time.monotonic()
    given, loads = make(tmp_path, 4_000, seed)
    acts = {name: random.Random(f"{seed} {name}").sample(some, len(some)) for name, some in ACTS.items()}
    plan = Plan(acts, 1, PRODUCED, slow_seconds=300.0, fast_seconds=12.0, frozen_seconds=SESSION_SECONDS + 3)
    with running(System(tmp_path / "rough", own_kafka.bootstrap, "join", PARTITIONS, SETTINGS)) as rough:
        rough.run("topics", "create")
        storm = Storm(rough, (*SOURCES, *AGENTS), loads, seed)
        foreign = Foreign(own_kafka, rough, seed)
        with foreign.writing():
            storm.run(plan)
        _told("the storm is over", began)
        foreign.settled()
        _settle(rough)
        pages = pages_of(rough, storm.workers[METRICS], (len(given) + 1) * (len(LEARNERS) + 1))
        rough.end()
        _check_totals(own_kafka.bootstrap, rough, pages)
        _check_replays(rough)
        _told("the counters are the sums of the outcomes, and both replays end in the same", began)
        at_work = [kill for kill in rough.kills if kill.at_work]
        assert len(at_work) >= 20, f"only {len(at_work)} kills hit a system at work"
        assert not (faults := rough.faults()), "\n".join(faults)
        events = read_topic(own_kafka.bootstrap, rough.topic("events"))
        _check_events(events, given, loads)
        foreign.check(events)
        _told("every row that was given stands in the log", began)
        with running(
            System(tmp_path / "calm", own_kafka.bootstrap, "joincalm", PARTITIONS, SETTINGS)
        ) as calm:
            calm.run("topics", "create")
            copy_topic(
                own_kafka.bootstrap,
                ((r.key, r.value, r.partition, r.headers) for r in events),
                calm.topic("events"),
            )
            for agent in AGENTS:
                calm.start_worker(agent)
            _settle(calm)
            calm.end()
            assert not (faults := calm.faults()), "\n".join(faults)
            _compare(own_kafka.bootstrap, rough, calm, given)
    _told("the undisturbed run ends in the same", began)


def _settle(system: System) -> None:
    for agent in AGENTS:
        until(lambda a=agent: system.settled(a), f"{agent.application} comes to the end of {agent.reads}")  # type: ignore[misc]


def _check_totals(bootstrap: str, system: System, pages: Sequence[str]) -> None:
    """Every outcome is counted once, and what is judged behind the start of its event is counted apart."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    for taken in chains(read_topic(bootstrap, system.topic("outcomes"))).taken.values():
        for one in taken:
            body = decode(one.record.value)[1]
            counts = totals.setdefault((body["space"], body["learner"]), Counter())
            for name in (*COUNTS, *SPLIT_COUNTS):
                counts[name] += body["counts"].get(name, 0)
    found = {
        key: {name: number for name, number in counts.items() if name != "loss_sum"}
        for key, counts in shown(pages).items()
    }
    assert found == totals
    assert all(counts["mistakes"] > 0 for (space, _), counts in totals.items() if space != SPACE), totals


def _check_replays(system: System) -> None:
    """The recipes of the README: what a replay can claim is equal bit for bit, and nothing differs."""
    for source, apart in (("constraints", ()), ("events", (BOTH.application,))):
        printed = json.loads(
            system.run("replay", "--from", source, "--until-checkpoint", "--compare", "--json", seconds=400)
        )
        found = [(one["agent"], one["space"], one["verdict"]) for one in printed["comparisons"]]
        print(source, Counter(verdict for _, _, verdict in found), flush=True)
        wrong = [one for one in found if one[0] not in apart and one[2] != "equal"]
        assert found and not wrong, wrong


def _check_events(records: Sequence[Record], given: Sequence[Given], loads: Sequence[Load]) -> None:
    """Every sequence of every load is there, in order; what was sent twice is the same but for its time."""
    rows: Counter[str] = Counter()
    blocks: dict[str, list[dict[str, object]]] = {load.load_id: [] for load in loads}
    for record in records:
        name, body = decode(record.value)
        place = f"{record.topic}/{record.partition}/{record.offset}"
        load, sequence = body["load"]["load_id"], body["load"]["sequence"]
        if load.startswith("source/"):
            continue
        require((record.key or b"").decode() == body["space"], place, "has another key than its space")
        first = blocks[load]
        content = {key: value for key, value in body.items() if key != "time_ms"}
        if sequence < len(first):
            require(first[sequence] == content, place, "is not the block that was sent before")
            continue
        require(sequence == len(first), place, "sequence", sequence, "after", len(first) - 1)
        first.append(content)
        counted = {"ItemBlock": "ids", "ClickBlock": "list_ids", "RelationBlock": "similar"}
        rows[load] += len(body[counted[name]])
    for some in given:
        told = {"items": some.items, "clicks": some.lists, "relations": some.relations}
        for kind, number in told.items():
            require(rows[f"{kind}-{some.space}"] == number, kind, some, rows)


def _compare(bootstrap: str, rough: System, calm: System, given: Sequence[Given]) -> None:
    made = [chains(read_topic(bootstrap, system.topic("constraints"))) for system in (rough, calm)]
    spaces = {SPACE, *(some.space for some in given)}
    assert made[0].taken.keys() == {(agent.name, space) for agent in BUILDERS for space in spaces}
    digests = [{key: digest(taken, True) for key, taken in some.taken.items()} for some in made]
    assert digests[0] == digests[1]
    assert sum(made[0].duplicates.values()) > 0
    numbers: Counter[str] = Counter()
    for (builder, _), taken in made[0].taken.items():
        for one in taken:
            numbers[builder] += len(decode(one.record.value)[1]["rule"])
    print(f"constraints: {dict(numbers)}", flush=True)
    assert min(numbers.values()) > 10_000
    for agent in BUILDERS:
        saved = [_saved(system, agent) for system in (rough, calm)]
        assert saved[0] == saved[1]
        large = [segments for name, (_, segments) in saved[0].items() if name != SPACE]
        assert all(large), "nothing lies in segments"
    learned = [chains(read_topic(bootstrap, system.topic("outcomes"))) for system in (rough, calm)]
    alone = {agent.name for agent in LEARNERS}
    contents = [
        {key: digest(taken, False) for key, taken in some.taken.items() if key[0] in alone}
        for some in learned
    ]
    assert contents[0] == contents[1]
    for agent in LEARNERS:
        cores = [
            {
                name: (space.core, space.facts)
                for name, space in read_checkpoints(
                    system.root, agent.application, system.topic("constraints"), PARTITIONS
                ).items()
            }
            for system in (rough, calm)
        ]
        assert cores[0].keys() == spaces
        assert cores[0] == cores[1]
    letters = [_letters(bootstrap, system) for system in (rough, calm)]
    assert letters[0] == letters[1]
    reasons = Counter(reason for _, reason, _ in letters[0].values())
    print(f"dead letters: {dict(reasons)}", flush=True)
    assert set(reasons) <= {"unknown-item", "contradiction"}


def _saved(system: System, agent: Agent) -> dict[str, tuple[str, dict[str, str]]]:
    found = read_checkpoints(system.root, agent.application, system.topic("events"), PARTITIONS)
    return {name: (space.whole, dict(space.segments)) for name, space in found.items()}


def _letters(bootstrap: str, system: System) -> Mapping[tuple[str, ...], tuple[bytes, str, str]]:
    """What builders and learners refused, each part of a record once: its bytes, the reason, and the detail."""
    found: dict[tuple[str, ...], tuple[bytes, str, str]] = {}
    for record in read_topic(bootstrap, system.topic("dead-letters")):
        told = {
            name.removeprefix("kinstream-dead-"): value.decode()
            for name, value in record.headers.items()
            if name.startswith("kinstream-dead-")
        }
        if told["consumer"] in NAMES:
            continue
        place = told["refused"].removeprefix(system.prefix)
        found[told["consumer"], place, told["rows"], told["reason"]] = (
            record.value,
            told["reason"],
            told["detail"],
        )
    return found
