"""The permissions that each role needs, and no others. Commands, checks and docs use this one list.

READ and WRITE of a topic imply DESCRIBE, READ of a group too, so neither is listed with them (KIP-679 makes
IDEMPOTENT_WRITE on the cluster part of WRITE as well). No role needs anything on the cluster as a whole.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from kinstream.streams import groups
from kinstream.streams.errors import SettingsError
from kinstream.streams.topics import (
    CONSTRAINTS,
    DEAD_LETTERS,
    EVENTS,
    FEEDBACK,
    MODELS,
    OUTCOMES,
    UPDATES,
    VECTORS,
    Topic,
)

#: Names of the operations in kafka-acls.sh and in Strimzi.
_SPELLED: Final = {
    "READ": "Read",
    "WRITE": "Write",
    "CREATE": "Create",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
}


#: Stands for the topic of a source, which the settings name.
TOPIC: Final = "TOPIC"
#: Operation on a source's topic -> why.
_FOREIGN: Final = {
    "READ": "records of another system",
    "WRITE": "its records that go back to a source",
    "DESCRIBE": "where it ends",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations on a topic or group, or on all with that prefix.

    Parameters
    ----------
    resource : "topic" or "group".
    why : its purpose, for users.
    optional : without it less information is shown, but nothing is refused.
    """

    resource: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False
    optional: bool = False

    @property
    def place(self) -> str:
        """The resource in words."""
        return f"{self.resource} {self.name}{'*' if self.prefixed else ''}"


@dataclass(frozen=True, slots=True)
class Role:
    """The work of a principal.

    Parameters
    ----------
    runs : the commands that it allows.
    agent : whether it is one of several of its kind, with a name.
    make : the grants, from the topics' prefix and that name; without a name, for every agent of the kind.
    foreign : operation on topics of sources, which are not ours; empty for none.
    """

    name: str
    runs: str
    make: Callable[[str, str | None], tuple[Grant, ...]]
    agent: bool = False
    foreign: str = ""

    def grants(
        self, prefix: str = "kinstream", agent: str | None = None, sources: Iterable[str] = (TOPIC,)
    ) -> tuple[Grant, ...]:
        """The grants to allow.

        Parameters
        ----------
        sources : topics of sources, for roles that use them.

        Raises
        ------
        SettingsError : an agent is named for a role that has none.
        """
        if agent is not None and not self.agent:
            raise SettingsError(f"{self.name} is one role; it takes no name")
        if not self.foreign:
            return self.make(prefix, agent)
        why = _FOREIGN[self.foreign]
        found = [
            Grant("topic", name, (self.foreign,), why, optional=self.foreign == "WRITE") for name in sources
        ]
        if self.foreign == "DESCRIBE":
            return (*found, *self.make(prefix, agent))
        why = "its retention"
        if self.foreign == "WRITE":
            why = "whether it is compacted"
        found += [Grant("topic", name, ("DESCRIBE_CONFIGS",), why, optional=True) for name in sources]
        return (*found, *self.make(prefix, agent))


def _on(topic: Topic, prefix: str, operation: str, why: str) -> Grant:
    return Grant("topic", topic.name(prefix), (operation,), why)


def _read(topic: Topic, prefix: str) -> Grant:
    return _on(topic, prefix, "READ", topic.holds)


def _letters(prefix: str) -> Grant:
    return _on(DEAD_LETTERS, prefix, "WRITE", "what it refuses")


def _group(prefix: str, role: str, agent: str | None) -> Grant:
    # As `AgentSpec.group` names them, of every generation.
    single = role in ("gate", "vectors", "metrics")
    middle = role if single else f"{role}-{agent}"
    rest = f"{role}-" if not single and agent is None else f"{middle}-v"
    why = "partitions, and offsets for lag tools"
    return Grant("group", f"{groups.start_of(prefix)}{rest}", ("READ",), why, prefixed=True)


def _seen(prefix: str, applications: str, why: str) -> Grant:
    name = f"{groups.start_of(prefix)}{applications}"
    return Grant("group", name, ("DESCRIBE",), why, prefixed=True)


def _retention(topic: Topic, prefix: str) -> Grant:
    why = "its retention"
    return Grant("topic", topic.name(prefix), ("DESCRIBE_CONFIGS",), why, optional=True)


def _own_outputs(topic: Topic, prefix: str) -> Grant:
    why = "whether a generation ended cleanly"
    return Grant("topic", topic.name(prefix), ("READ",), why, optional=True)


def _updates(prefix: str, operation: str, why: str) -> Grant:
    # If no learner publishes updates, the topic need not exist.
    return Grant("topic", UPDATES.name(prefix), (operation,), why, optional=True)


def _source(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _on(EVENTS, prefix, "WRITE", "the events that its records become"),
        _letters(prefix),
        _group(prefix, "source", agent),
        _own_outputs(EVENTS, prefix),
    )


def _builder(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(EVENTS, prefix),
        _on(CONSTRAINTS, prefix, "WRITE", "the constraints that it builds"),
        _letters(prefix),
        _group(prefix, "builder", agent),
        _retention(EVENTS, prefix),
        _own_outputs(CONSTRAINTS, prefix),
    )


def _learner(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(CONSTRAINTS, prefix),
        _on(OUTCOMES, prefix, "WRITE", "its outcomes of each block"),
        _on(MODELS, prefix, "WRITE", "the locations of its models"),
        _updates(prefix, "WRITE", "the changes of its maps, with publish_updates"),
        _letters(prefix),
        _group(prefix, "learner", agent),
        _retention(CONSTRAINTS, prefix),
        _own_outputs(OUTCOMES, prefix),
    )


def _gate(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(EVENTS, prefix),
        _on(MODELS, prefix, "WRITE", "who serves"),
        _letters(prefix),
        _group(prefix, "gate", None),
        _retention(EVENTS, prefix),
        _own_outputs(MODELS, prefix),
    )


def _vectors(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(EVENTS, prefix),
        _on(VECTORS, prefix, "WRITE", "versions of catalogues"),
        _letters(prefix),
        _group(prefix, "vectors", None),
        _retention(EVENTS, prefix),
        _own_outputs(VECTORS, prefix),
    )


def _sink(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(VECTORS, prefix),
        _letters(prefix),
        _group(prefix, "sink", agent),
        _retention(VECTORS, prefix),
    )


def _orders(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (_read(MODELS, prefix), _on(EVENTS, prefix, "WRITE", "orders to write a version"))


def _metrics(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(OUTCOMES, prefix),
        _letters(prefix),
        _group(prefix, "metrics", None),
        _retention(OUTCOMES, prefix),
    )


def _producer(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (_on(EVENTS, prefix, "WRITE", "the rows of a load, and control records"),)


def _pacing(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        *(_on(topic, prefix, "DESCRIBE", "where it ends") for topic in (CONSTRAINTS, OUTCOMES)),
        _seen(prefix, "", "the positions of the agents"),
    )


def _status(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        *(_on(topic, prefix, "DESCRIBE", "where it ends") for topic in (EVENTS, CONSTRAINTS, OUTCOMES)),
        # The topic need not exist if nothing writes versions.
        Grant("topic", VECTORS.name(prefix), ("DESCRIBE",), "where it ends, for sinks", optional=True),
        Grant(
            "topic", DEAD_LETTERS.name(prefix), ("DESCRIBE",), "how many records were refused", optional=True
        ),
        _seen(prefix, "", "the members of the agents' groups"),
    )


def _replay(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(EVENTS, prefix),
        _read(CONSTRAINTS, prefix),
        _on(OUTCOMES, prefix, "DESCRIBE", "its number of partitions"),
    )


def _models(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (_read(MODELS, prefix), _updates(prefix, "READ", UPDATES.holds))


def _serve(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (
        _read(EVENTS, prefix),
        _read(MODELS, prefix),
        _updates(prefix, "READ", "the changes of maps, for spaces with updates"),
    )


def _record(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    events = Grant("topic", EVENTS.name(prefix), ("READ",), "the items of our own indexes", optional=True)
    return (events, *_models(prefix, agent), _on(FEEDBACK, prefix, "WRITE", FEEDBACK.holds))


def _letters_reader(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    return (_read(DEAD_LETTERS, prefix),)


def _redrive(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    inputs = (EVENTS, CONSTRAINTS, OUTCOMES)
    return (
        _read(DEAD_LETTERS, prefix),
        *(
            _on(topic, prefix, "WRITE", "records that go back to the agent that refused them")
            for topic in inputs
        ),
        # The topic need not exist if nothing writes versions.
        Grant("topic", VECTORS.name(prefix), ("WRITE",), "records that go back to a sink", optional=True),
    )


def _topics(prefix: str, agent: str | None) -> tuple[Grant, ...]:
    every = f"{prefix}."
    compared = "for kinstream check to compare them with the catalogue"
    return (
        Grant("topic", every, ("CREATE", "DESCRIBE"), "to create the catalogue", prefixed=True),
        Grant("topic", every, ("DESCRIBE_CONFIGS",), compared, prefixed=True, optional=True),
    )


ROLES: Final = {
    role.name: role
    for role in (
        Role("topics", "kinstream topics create, list", _topics),
        Role(
            "producer",
            "kinstream produce; kinstream spaces; kinstream gate; your services that send events",
            _producer,
        ),
        Role("pacing", "kinstream produce --max-backlog, besides producer", _pacing),
        Role("source", "kinstream worker source NAME", _source, agent=True, foreign="READ"),
        Role("builder", "kinstream worker builder NAME", _builder, agent=True),
        Role("learner", "kinstream worker learner NAME", _learner, agent=True),
        Role("gate", "kinstream worker gate", _gate),
        Role("vectors", "kinstream worker vectors", _vectors),
        Role("sink", "kinstream worker sink NAME", _sink, agent=True),
        Role("vector-orders", "kinstream vectors watch, status", _orders),
        Role("metrics", "kinstream worker metrics", _metrics),
        Role("status", "kinstream status", _status, foreign="DESCRIBE"),
        Role("replay", "kinstream replay and evaluate, from events or constraints", _replay),
        Role(
            "models",
            "kinstream models list, show, export; kinstream serve with stores alone; your services that use models",
            _models,
        ),
        Role("serve", "kinstream serve", _serve),
        Role("serve-record", "kinstream serve with record", _record),
        Role("dead-letters", "kinstream dead-letters list, show", _letters_reader),
        Role("redrive", "kinstream dead-letters redrive", _redrive, foreign="WRITE"),
    )
}


def role(name: str) -> Role:
    """The role of that name.

    Raises
    ------
    SettingsError : no role has that name.
    """
    if name not in ROLES:
        raise SettingsError(f"no role has the name {name!r}; there are: {', '.join(ROLES)}")
    return ROLES[name]


def check_principal(principal: str) -> str:
    """A principal as Kafka writes it, such as `User:learner`.

    Raises
    ------
    SettingsError : it is not one.
    """
    kind, colon, name = principal.partition(":")
    if not colon or not kind.isalnum() or not name or not name.isprintable():
        raise SettingsError(f"--principal {principal!r}: write it as Kafka does, such as User:learner")
    return principal


def commands(grants: Iterable[Grant], principal: str, brokers: str, config: str) -> list[str]:
    """Lines for a shell that allow it, one for each grant."""
    lines = []
    for grant in grants:
        words = ["kafka-acls.sh", "--bootstrap-server", brokers, "--command-config", config, "--add"]
        words += ["--allow-principal", principal]
        for operation in grant.operations:
            words += ["--operation", _SPELLED[operation]]
        words += [f"--{grant.resource}", grant.name]
        words += ["--resource-pattern-type", "prefixed"] if grant.prefixed else []
        lines.append(shlex.join(words))
    return lines


def as_json(grants: Iterable[Grant]) -> list[dict[str, Any]]:
    """The grants as `spec.authorization.acls` of Strimzi's KafkaUser has them."""
    return [
        {
            "resource": {
                "type": grant.resource,
                "name": grant.name,
                "patternType": "prefix" if grant.prefixed else "literal",
            },
            "operations": [_SPELLED[operation] for operation in grant.operations],
            "host": "*",
        }
        for grant in grants
    ]


def json_text(grants: Iterable[Grant]) -> str:
    return json.dumps(as_json(grants), indent=2)
