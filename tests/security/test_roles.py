"""Every role works with its own principal and only its ACLs; without one of them it says at once which is missing."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import psutil
import pytest

from kinstream.cli.shared.agents import agent_spec
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.errors import DeliveryDenied
from kinstream.streams.groups import name_of
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.rights.access import lacking
from kinstream.streams.kafka.rights.acls import ROLES, Grant
from kinstream.streams.settings import KafkaSettings, load
from tests.faults.processes import AGENTS, System
from tests.kafka.secured_broker import SecuredBroker
from tests.security.users import (
    acting_as,
    as_admin,
    by_certificate,
    by_password,
    command,
    ended,
    kafka_acls,
    until,
)

PASSWORD = "pa55-of-the-role-tests"

#: Signs the ids of lists that a service records.
GATE_KEY = {"KINSTREAM_GATE_KEY": "a key of the role tests"}


class Talkative(System):
    """A system whose processes log all that they can."""

    def command(self, *arguments: str) -> list[str]:
        python, option, module, *rest = super().command(*arguments)
        return [python, option, module, "--log-level", "DEBUG", *rest]


@dataclass(slots=True)
class Case:
    """A system of its own on the secured broker, and a user for each role."""

    broker: SecuredBroker
    system: System
    patch: pytest.MonkeyPatch
    folder: Path

    def user(self, role: str) -> str:
        return f"{self.system.prefix}-{role}"

    def environment(self, role: str) -> dict[str, str]:
        login = by_password(self.broker, self.user(role), PASSWORD)
        return login | GATE_KEY

    def grants(self, role: str) -> list[Grant]:
        """What the printed commands allow."""
        named = [NAMES[role]] if role in NAMES else []
        status, text = ended(
            command(
                self.system.file, "topics", "acls", role, *named, "--principal", f"User:{self.user(role)}"
            )
        )
        assert status == 0, text
        return kafka_acls(self.broker, text.splitlines())

    def join(self, role: str) -> list[Grant]:
        """Let the user of a role in, with its ACLs."""
        self.broker.add_user(self.user(role), PASSWORD)
        return self.grants(role)

    def run(self, role: str, *arguments: str) -> str:
        """Run a command as that role's user; what it printed."""
        status, text = self.attempt(role, *arguments)
        assert status == 0, text
        return text

    def run_as_admin(self, *arguments: str) -> str:
        """Run a command as the administrator, who this process is."""
        status, text = ended(command(self.system.file, *arguments))
        assert status == 0, text
        return text

    def filled(self, words: Sequence[str], seed: int = 4) -> list[str]:
        """A command with its rows and its folder."""
        found = [_rows(self, seed) if word == "ROWS" else word for word in words]
        found = [word.replace("PREFIX", self.system.prefix) for word in found]
        return [*found, "--progress-folder", str(self.folder / "loads")] if words[0] == "produce" else found

    def other_file(self) -> Path:
        """Settings of a system whose topics do not exist."""
        path = self.folder / f"other-{uuid4().hex[:8]}.toml"
        text = self.system.file.read_text().replace(self.system.prefix, f"other-{uuid4().hex[:8]}")
        path.write_text(text)
        return path

    def groups(self, grant: Grant) -> list[str]:
        """The groups that exist of those that a grant is for."""
        names = [name_of(self.system.prefix, application, 1) for application in AGENTS]
        return [name for name in names if grant.resource == "group" and name.startswith(grant.name)]

    def attempt(self, role: str, *arguments: str) -> tuple[int, str]:
        with acting_as(self.patch, self.environment(role)):
            return ended(command(self.system.file, *arguments))


@pytest.fixture
def case(secured_kafka: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    # The test itself looks on as the administrator.
    for name, value in as_admin(secured_kafka).items():
        monkeypatch.setenv(name, value)
    system = Talkative(tmp_path / "system", secured_kafka.bootstrap)
    yield Case(secured_kafka, system, monkeypatch, tmp_path)
    system.close()


def _rows(case: Case, seed: int) -> str:
    draw = np.random.default_rng([7, seed])
    path = case.folder / f"rows-{seed}.npz"
    np.savez(path, X=draw.normal(size=(60, 4)), y=draw.integers(0, 3, 60))
    return str(path)


@pytest.mark.long
def test_the_pipeline_works_with_least_privileges_and_leaves_no_secret_anywhere(case: Case) -> None:
    system = case.system
    for role in ROLES:
        case.join(role)
    # A builder by certificate, a learner whose password is in a file, a metrics agent that has it in the environment.
    mounted = case.folder / "mounted"
    mounted.write_text(PASSWORD + "\n")
    learner = case.environment("learner") | {
        "KAFKA_SASL_PASSWORD_FILE": str(mounted),
        "KAFKA_SASL_PASSWORD": "",
    }
    principals = {
        "builder-one-pass": by_certificate(case.broker, case.user("builder"), PASSWORD),
        "learner-opml": learner,
        "metrics": case.environment("metrics"),
    }

    assert "created" in case.run("topics", "topics", "create")
    case.run(
        "producer",
        "produce",
        "labelled",
        _rows(case, 1),
        "--space",
        "s",
        "--progress-folder",
        str(case.folder),
    )
    workers = {
        name: system.worker(name, "--create", environment=environment)
        for name, environment in principals.items()
    }
    for worker in workers.values():
        worker.expect("serves http")
    argv = [word for worker in workers.values() for one in worker.family() for word in one.cmdline()]
    assert any("--unsupervised" in word for word in argv) and PASSWORD not in " ".join(argv)
    system.settle()
    for worker in workers.values():
        until(partial(_is_ready, worker.log()), "its partitions are taken over")
    pages = [page for worker in workers.values() for page in _pages(worker.log())]

    # A learner that is killed goes on from its checkpoint, and a letter goes back where it came from.
    psutil.Process(workers["learner-opml"].worker_pid()).kill()
    case.run("producer", "spaces", "pause", "s")
    case.run(
        "producer",
        "produce",
        "labelled",
        _rows(case, 2),
        "--space",
        "s",
        "--progress-folder",
        str(case.folder),
    )
    until(
        lambda: "space-paused" in case.run("dead-letters", "dead-letters", "list"),
        "the rows are refused",
        seconds=40.0,
    )
    assert "space-paused" in case.run("dead-letters", "dead-letters", "list", "--json")
    case.run("producer", "spaces", "resume", "s")
    assert "sent 1" in case.run("redrive", "dead-letters", "redrive", "--reason", "space-paused", "--yes")
    workers["learner-opml"].expect("serves http", times=2)
    system.settle()
    system.check_exact()

    assert json.loads(case.run("models", "models", "list", "--json"))[0]["space"] == "s"
    replayed = case.run("replay", "replay", "--learner", "opml", "--from", "constraints", "--compare")
    assert "equal" in replayed or "same" in replayed, replayed
    case.broker.allow(f"User:{case.user('pacing')}", ROLES["producer"].grants(system.prefix))
    case.run(
        "pacing", "produce", "labelled", _rows(case, 3), "--space", "s", "--max-backlog", "5",
        "--progress-folder", str(case.folder),
    )  # fmt: skip
    system.settle()
    for worker in workers.values():
        assert worker.stop() == 0
        assert worker.said(" DEBUG ")
    _no_secret(case, PASSWORD, pages)


def _url(log: str) -> str:
    found: str = re.findall(r"serves (http://\S+)/metrics", log)[-1]
    return found


def _is_ready(log: str) -> bool:
    try:
        with urllib.request.urlopen(f"{_url(log)}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _pages(log: str) -> list[str]:
    url = _url(log)
    found = []
    for path in ("metrics", "healthz", "readyz"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=5) as answer:
            found.append(answer.read().decode())
    return found


def _no_secret(case: Case, secret: str, pages: list[str]) -> None:
    """No log, checkpoint, birth record, progress file or page holds a secret."""
    assert len(pages) == 9 and secret not in "".join(pages)
    holders = [
        str(path)
        for path in case.folder.rglob("*")
        if path.is_file() and path.name != "mounted" and secret.encode() in path.read_bytes()
    ]
    assert not holders
    names = {path.name for path in case.folder.rglob("*")}
    assert {"birth.json", "kinstream.toml"} <= names
    for ending in (".manifest.json", "-metrics.log"):
        assert any(name.endswith(ending) for name in names), ending


# ---- one permission less ---------------------------------------------------------------------------------------------

NAMES = {"builder": "one-pass", "learner": "opml", "source": "web", "sink": "shop"}
#: A source's topic, which is not one of ours.
WEB = f"web-{uuid4().hex[:8]}"
SOURCE = f"""
[sources.web]
topic = "{WEB}"
kind = "relations"
space = "s"
fields = {{left = "a", right = "b"}}
"""
#: How each role is tried. A worker that is allowed everything would not end, so `lacking` is asked before.
PRODUCE = ("produce", "labelled", "ROWS", "--space", "s")
VECTORS = ("--set", 'vectors={"s": {"learner": "opml"}}')
SINK = ("--set", 'sinks={"shop": {"space": "s", "store": "pgvector", "collection": "items"}}')
COMMANDS: dict[str, tuple[str, ...]] = {
    "topics": ("topics", "create"),
    "producer": PRODUCE,
    "pacing": (*PRODUCE, "--max-backlog", "5"),
    "source": ("worker", "source", "web", "--create", "--unsupervised"),
    "builder": ("worker", "builder", "one-pass", "--create", "--unsupervised"),
    "learner": ("worker", "learner", "opml", "--create", "--unsupervised"),
    "metrics": ("worker", "metrics", "--create", "--unsupervised"),
    "vectors": (*VECTORS, "worker", "vectors", "--create", "--unsupervised"),
    "sink": (*SINK, "worker", "sink", "shop", "--create", "--unsupervised"),
    "vector-orders": (*VECTORS, "vectors", "watch", "--once"),
    "status": ("status",),
    "replay": ("replay", "--learner", "opml", "--from", "events"),
    "models": ("models", "list"),
    "serve": (
        "--set",
        "serve.http_port=0",
        "--set",
        'serve.spaces={"s": {"learner": "opml"}}',
        "serve",
        "--unsupervised",
    ),
    "serve-record": (
        "--set",
        "serve.http_port=0",
        "--set",
        'serve.spaces={"s": {"learner": "opml", "record": true}}',
        "--set",
        'sources={"feedback": {"topic": "PREFIX.feedback", "preset": "feedback"}}',
        "serve",
        "--unsupervised",
    ),
    "dead-letters": ("dead-letters", "list"),
    "redrive": ("dead-letters", "redrive", "--all", "--yes"),
}


def _needed() -> list[tuple[str, int, str]]:
    """Role, number of the grant, operation: all that can be withdrawn."""
    return [
        (name, number, operation)
        for name, role in ROLES.items()
        # The system of these tests has no gate.
        if name != "gate"
        for number, grant in enumerate(role.grants(agent=NAMES.get(name), sources=(WEB,)))
        for operation in grant.operations
        # Its model has no item map that an order could hold.
        if not grant.optional and (name, operation) != ("vector-orders", "WRITE")
    ]


@pytest.fixture(scope="module")
def standing(secured_kafka: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A system that has begun, whose roles all may do what they need."""
    folder = tmp_path_factory.mktemp("standing")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in as_admin(secured_kafka).items():
            patch.setenv(name, value)
        system = System(folder / "system", secured_kafka.bootstrap)
        system.file.write_text(system.file.read_text() + SOURCE)
        system.settings = load(system.file)
        case = Case(secured_kafka, system, patch, folder)
        case.run_as_admin("topics", "create")
        secured_kafka.create_topic(WEB)
        with system.cluster() as cluster:
            for role in ("source", "builder", "learner", "metrics"):
                spec = agent_spec(system.settings, role, NAMES.get(role))
                open_generation(spec, system.settings, cluster, create=True)
        case.run_as_admin(*case.filled(PRODUCE))
        for role in ROLES:
            case.join(role)
        case.broker.allow(f"User:{case.user('pacing')}", ROLES["producer"].grants(system.prefix))
        yield case
        system.close()


@pytest.mark.parametrize(("name", "number", "operation"), _needed())
def test_a_principal_that_lacks_one_is_told_which(
    standing: Case, name: str, number: int, operation: str
) -> None:
    case = standing
    grants = ROLES[name].grants(case.system.prefix, NAMES.get(name), (WEB,))
    one = replace(grants[number], operations=(operation,))
    words, file = COMMANDS[name], case.system.file
    if operation == "CREATE":
        # Where the topics are, nothing is created.
        words, file = ("topics", "create"), case.other_file()
        one = replace(one, name=f"{load(file).topics.prefix}.")
        case.broker.allow(f"User:{case.user(name)}", [replace(one, operations=("DESCRIBE",))])
    case.broker.withdraw(f"User:{case.user(name)}", [one])
    try:
        groups = case.groups(one)
        wanted = (
            [f"{operation} on {one.place}"]
            if not one.prefixed
            else [f"{operation} on group {g}" for g in groups]
        )
        with acting_as(case.patch, case.environment(name)):
            cluster = Cluster(load(file).kafka)
            if one.resource == "group" or not one.prefixed:
                until(lambda: lacking(cluster, grants, groups) == wanted, f"{wanted} is withdrawn")
            cluster.close()
            began = time.monotonic()
            status, text = ended(command(file, *case.filled(words)))
        assert time.monotonic() - began < 15.0
        assert status == 3, text
        last = text.splitlines()[-1]
        where = f"(group|topic) {re.escape(one.name)}"
        assert re.search(rf"User:{case.user(name)} lacks ({operation}|DESCRIBE) on {where}", last), text
        assert "kinstream topics acls" in last and PASSWORD not in text
    finally:
        case.broker.allow(f"User:{case.user(name)}", [one])


@pytest.mark.parametrize("role", ["topics", "builder", "learner"])
def test_a_check_by_one_role_says_what_each_agent_lacks(standing: Case, role: str) -> None:
    status, text = standing.attempt(role, "check", "--json")
    assert status == 1
    found = {one["about"]: one for one in json.loads(text)}
    own = {"topics": "topics", "builder": "builder-one-pass", "learner": "learner-opml"}
    for about in (*own.values(), "metrics"):
        one = found[about]
        assert one["good"] is (about == own[role])
        if not one["good"]:
            assert f"User:{standing.user(role)} lacks" in one["text"] and "topics acls" in one["text"]
    assert found["settings"]["good"] and found["brokers"]["good"] and found["checkpoints"]["good"]


def test_nobody_at_all_gets_nothing(standing: Case) -> None:
    nobody = {"KAFKA_BOOTSTRAP_SERVERS": standing.broker.at("PLAIN")} | GATE_KEY
    with acting_as(standing.patch, nobody):
        for name, words in COMMANDS.items():
            status, text = ended(command(standing.system.file, *standing.filled(words)))
            assert status == 3 and "User:ANONYMOUS lacks" in text.splitlines()[-1], (name, text)


def test_a_write_that_is_not_allowed_ends_the_sending_with_the_reason(standing: Case) -> None:
    topic = standing.system.topic("outcomes")
    for role, told in (("builder", f"lacks WRITE on topic {topic}"), ("models", "authorization failed")):
        with acting_as(standing.patch, standing.environment(role)):
            emitter = Emitter(confluent_producer(KafkaSettings()))
            with pytest.raises(DeliveryDenied, match=re.escape(told)) as error:
                emitter.send(topic, b"s", b"value", (), 0)
                emitter.confirm(20.0)
            emitter.close()
        assert error.value.exit_status == 3 and "kinstream topics acls" in str(error.value)


@pytest.mark.long
def test_a_permission_that_goes_while_a_worker_runs_ends_it_with_the_reason(standing: Case) -> None:
    system, user = standing.system, f"User:{standing.user('builder')}"
    read = ROLES["builder"].grants(system.prefix, "one-pass")[0]
    worker = system.worker("builder-one-pass", environment=standing.environment("builder"))
    worker.expect("serves http")
    system.wait_for("builder-one-pass", system.ends("events"))
    standing.broker.withdraw(user, [read])
    try:
        standing.run_as_admin(*standing.filled(PRODUCE, seed=5))
        assert worker.status(60.0) == 3
        assert (
            f"lacks READ on topic {read.name}" in worker.log()
            or f"lacks DESCRIBE on topic {read.name}" in worker.log()
        )
        assert not worker.said("Traceback")
    finally:
        standing.broker.allow(user, [read])
    # Nothing is lost: allowed again, it goes on where its checkpoint is.
    worker = system.worker("builder-one-pass", environment=standing.environment("builder"), tag="-again")
    system.wait_for("builder-one-pass", system.ends("events"))
    assert worker.stop() == 0
    system.check_exact(upto="builder-one-pass")
