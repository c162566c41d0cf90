"""The recipes of the operations guide for re-created topics are followed to the letter, and counts are exact."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.records.codec.codec import decode_constraints, decode_outcome
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ConstraintBlock, Outcome
from kinstream.streams.settings import load as read_settings
from tests.docs.pages import ROOT, blocks
from tests.faults.processes import AGENTS, System
from tests.kafka.broker import KafkaBroker
from tests.kafka.jars import bring
from tests.support.processes import Process, until

PAGE: Final = ROOT / "docs" / "operations.md"
BUILDER, LEARNER, METRICS = "builder-one-pass", "learner-opml", "metrics"
#: Rows of the load that the recipe sends.
ROWS: Final = 600
#: A space on the partition of `shop`.
NEIGHBOUR: Final = "other"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker whose topics have the names that the page has."""
    with KafkaBroker(tmp_path_factory.mktemp("recreated-kafka")) as broker:
        yield broker


@pytest.fixture
def system(broker: KafkaBroker, tmp_path: Path) -> Iterator[System]:
    made = System(tmp_path / "system", broker.bootstrap)
    made.prefix = "kinstream"
    made.configure()
    for name in broker.admin().list_topics(timeout=10).topics:
        if name.startswith("kinstream."):
            broker.delete_topic(name)
    made.create_topics()
    write_rows(made.folder / "items.csv")
    yield made
    made.close()


def write_rows(file: Path) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, ROWS)
    rows = rng.normal(size=(ROWS, 6)) + labels[:, None]
    lines = [
        ",".join([*(f"{x:.5f}" for x in row), str(label)]) for row, label in zip(rows, labels, strict=True)
    ]
    file.write_text("\n".join(["a,b,c,d,e,f,label", *lines]) + "\n", encoding="utf-8")


# ---- the page --------------------------------------------------------------------------------------------------------


def recipe(name: str) -> list[str]:
    """The lines of the shell example below the mark of that name."""
    (found,) = [block.text for block in blocks(PAGE, "sh") if block.before == f"<!-- test: {name} -->"]
    return found.splitlines()


def environment(system: System) -> dict[str, str]:
    """A shell in which Kafka's own tools and kinstream are found."""
    tools = system.folder / "bin"
    tools.mkdir(exist_ok=True)
    script = tools / "kafka-topics.sh"
    java = f'exec java -Xmx128m -cp {shlex.quote(str(bring()))}"/*" org.apache.kafka.tools.TopicCommand "$@"'
    script.write_text(f"#!/bin/sh\n{java}\n", encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KAFKA_BOOTSTRAP_SERVERS": system.bootstrap}


def follow(system: System, name: str) -> dict[str, Process]:
    """Do what the page says, line by line; what it has started, by application."""
    started: dict[str, Process] = {}
    for line in recipe(name):
        if not line.startswith("kinstream worker"):
            done = subprocess.run(
                ["bash", "-euc", line],
                cwd=system.folder,
                env=environment(system),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            continue
        words = tuple(word for word in line.split()[2:] if not word.startswith("--"))
        application = next(known for known, arguments in AGENTS.items() if arguments == words)
        log = system.folder / f"{application}-again.log"
        command = ["bash", "-euc", f"cd {shlex.quote(str(system.folder))}; exec {line}"]
        process = Process(command, log, environment(system))
        system.adopt(process)
        process.expect(r"serves http")
        started[application] = process
    return started


# ---- counts ----------------------------------------------------------------------------------------------------------


def identity(message: Message) -> tuple[str, ...]:
    found = {name: (value or b"").decode() for name, value in message.headers}
    return tuple(found[f"kinstream-{name}"] for name in ("emitter", "generation", "epoch", "origin"))


def once(messages: list[Message]) -> list[Message]:
    """Each output once."""
    return list({(message.key, identity(message)): message for message in messages}.values())


def built(system: System) -> int:
    """Constraints in the log."""
    records = [decode_constraints(message.value or b"") for message in once(system.read("constraints"))]
    return sum(len(record) for record in records if isinstance(record, ConstraintBlock))


def learned(system: System) -> int:
    """Constraints of which the log holds an outcome."""
    records = [decode_outcome(message.value or b"") for message in once(system.read("outcomes"))]
    counts = [record.counts for record in records if isinstance(record, Outcome)]
    return sum(one.seen + one.rejected + one.ignored + one.held_out for one in counts)


def counted(worker: Process) -> float:
    fates = ("seen", "rejected", "ignored", "held_out")
    return sum(worker.metric(f"kinstream_constraints_{fate}_total") or 0.0 for fate in fates)


def generations(system: System, role: str) -> set[str]:
    return {identity(message)[1] for message in system.read(role)}


def done(system: System, *arguments: str) -> None:
    status, text = system.run(*arguments)
    assert status == 0, text


def load(system: System, name: str, space: str = "shop") -> None:
    """The rows once more, as a load of that name."""
    file = str(system.folder / "items.csv")
    done(system, "produce", "labelled", file, "--space", space, "--load-id", name)


def settled(system: System) -> None:
    system.settle()
    system.wait_for(METRICS, system.ends("outcomes"))


def at_work(system: System, broker: KafkaBroker, role: str) -> dict[str, Process]:
    """All agents, which have worked, and under which the topic is re-created while they go on."""
    workers = {name: system.worker(name, "--create") for name in (BUILDER, LEARNER, METRICS)}
    load(system, "first", NEIGHBOUR)
    # With an epoch of the old log, which is above that of a space that comes by itself in the new one.
    done(system, "spaces", "create", "shop", "--dimension", "6")
    load(system, "second")
    settled(system)
    old = system.read(role) if role in ("constraints", "outcomes") else []
    broker.delete_topic(system.topic(role))
    system.create_topics()
    load(system, "third")
    for message in old[-5:]:
        # As an agent that has not noticed yet writes on. How many it writes is a matter of time.
        system.send([(message.key, message.value)], role, headers_of(message), message.partition)
    return workers


def headers_of(message: Message) -> Headers:
    return tuple((name, value or b"") for name, value in message.headers)


def stopped(system: System, workers: dict[str, Process], ended: set[str]) -> None:
    """Those agents have ended with status 3; the others are stopped, and no group has members."""
    for application in ended:
        assert workers[application].status(60.0) == 3, workers[application].log()
        assert workers[application].said("was re-created"), workers[application].log()
    for application in set(workers) - ended:
        assert workers[application].stop() == 0
    until(lambda: not any(system.members(name) for name in workers), "the groups are empty")


def exact(system: System, agents: dict[str, Process], generation: str) -> None:
    """Another load goes through, and everything that the log holds was built, learned and counted once."""
    load(system, "fourth")
    settled(system)
    wanted = system.check_exact(upto=BUILDER)
    assert system.states(LEARNER) == wanted.learner
    assert generations(system, "outcomes") == {generation}
    until(lambda: counted(agents[METRICS]) == learned(system), "the page counts what was learned")
    assert [agent.stop() for agent in agents.values()] == [0, 0, 0]


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "ended", "refusals"),
    [
        (
            "events",
            {BUILDER},
            ["topic kinstream.events was re-created, and kinstream.constraints, which builder-one-pass"],
        ),
        (
            "constraints",
            {BUILDER, LEARNER},
            [
                "topic kinstream.constraints was re-created while builder-one-pass ran",
                "delete kinstream.constraints, and create it again: kinstream topics create",
            ],
        ),
    ],
)
def test_what_is_made_of_a_recreated_topic_is_made_again_once(
    system: System, broker: KafkaBroker, role: str, ended: set[str], refusals: list[str]
) -> None:
    stopped(system, at_work(system, broker, role), ended)
    assert generations(system, "constraints") == {"1"}
    # Nothing is written beside constraints of a lost log, and no output of the old generation is passed over.
    text = system.run("worker", "builder", "one-pass", "--new-generation", "--from-start")[1]
    assert all(refusal in text for refusal in refusals), text
    assert read_birth(str(system.root), BUILDER, 2) is None
    agents = follow(system, f"{role} was re-created")
    settled(system)
    assert generations(system, "constraints") == generations(system, "outcomes") == {"2"}
    assert learned(system) == built(system) > 0
    exact(system, agents, "2")
    assert learned(system) == built(system)


@pytest.mark.kafka
@pytest.mark.long
def test_learners_read_the_constraints_again_where_outcomes_was_recreated(
    system: System, broker: KafkaBroker
) -> None:
    stopped(system, at_work(system, broker, "outcomes"), {LEARNER, METRICS})
    status, text = system.run(
        "worker", *AGENTS[LEARNER], "--unsupervised", "--new-generation", "--from-start"
    )
    assert status == 3
    assert "topic kinstream.outcomes was re-created while learner-opml ran, and holds outputs" in text
    agents = follow(system, "outcomes was re-created")
    settled(system)
    assert generations(system, "outcomes") == {"2"}
    assert learned(system) == built(system) > 0
    exact(system, agents, "2")
    assert learned(system) == built(system)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "ended"),
    [("models", {LEARNER}), ("updates", {LEARNER}), ("dead-letters", {BUILDER, LEARNER, METRICS})],
)
def test_agents_go_on_where_no_generation_ends(
    system: System, broker: KafkaBroker, role: str, ended: set[str]
) -> None:
    with system.file.open("a", encoding="utf-8") as settings:
        settings.write("publish_updates = true\n")
    system.settings = read_settings(system.file)
    stopped(system, at_work(system, broker, role), ended)
    agents = follow(system, "models was re-created")
    exact(system, agents, "1")
    assert learned(system) == built(system)
    system.check_exact()
    assert {message.key for message in system.read("models")} == {b"shop/opml/1", b"other/opml/1"}
