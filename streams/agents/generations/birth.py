"""The birth record of a generation: what shapes its outputs, and where in which cluster it began.

The record is written once beside the checkpoints and compared at every start and every assignment. A generation
whose record differs from what is found does not continue by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from kinstream.streams.checkpoints.files import Damaged, Files
from kinstream.streams.checkpoints.names import file_name, open_files, seal, unseal
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from kinstream.streams.kafka.cluster_view import known_id

#: 3 if the generation continues with states on more partitions, else 1. 2 began with the state of a replay.
FORMAT: Final = 3
_NAME: Final = "birth.json"
#: The place in the docs of the steps for a re-created topic. Their order matters.
RECIPE: Final = "docs/operations.md, 'A topic was re-created'"

#: Tables of `kinstream.toml` by the kind of an agent, entries of the record that are settings of another table, and
#: those that are no setting.
_SECTIONS: Final = {"source": "sources", "builder": "builders", "learner": "learners", "sink": "sinks"}
_ELSEWHERE: Final = {"auto_create": "spaces.auto_create", "max_spaces": "spaces.max_per_partition"}
_NO_SETTING: Final = {
    "algorithm": "the algorithm, whose version comes with Kinstream",
    "codec": "the version of the records, which comes with Kinstream",
    "key": "the gate's key, by its fingerprint",
}


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """A topic in the cluster. `topic_id` is None if the brokers give none."""

    topic_id: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Repartition:
    """The generation whose last states, chains and refusals were moved to more partitions.

    Parameters
    ----------
    generation : its number.
    partitions : number of partitions of its input.
    """

    generation: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Birth:
    """The record of how a generation began.

    Parameters
    ----------
    settings : settings that shape the outputs, in readable form: hyper-parameters, algorithm version, block limit,
        scaler.
    settings_digest : of those and of the settings without a readable form (`settings_digest`).
    start_offsets : per partition of the input topic.
    output_topics : by name.
    inherits : the generation whose last checkpoints hold the declarations, positions and refusals from before; None
        after a first start and after `--from-start`.
    repartition : None for a generation that began with nothing learned. One that continues with the states of another
        generation, on more partitions, began with a checkpoint of every partition, at its start offset.
    """

    application: str
    generation: int
    settings_digest: str
    settings: Mapping[str, Any]
    start_offsets: Mapping[int, int]
    cluster_id: str
    input_topic: str
    input_topic_id: str | None
    input_partitions: int
    output_topics: Mapping[str, TopicIdentity]
    created_ms: int
    inherits: int | None = None
    repartition: Repartition | None = None


@dataclass(frozen=True, slots=True)
class BirthFacts:
    """The present values of the fields of `Birth` that must not change."""

    settings_digest: str
    settings: Mapping[str, Any]
    cluster_id: str
    input_topic: str
    input_topic_id: str | None
    input_partitions: int
    output_topics: Mapping[str, TopicIdentity]


def settings_digest(settings: Mapping[str, Any]) -> str:
    """The sha256 of settings in canonical JSON."""
    text = json.dumps(_as_json(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_birth(root: str, birth: Birth) -> bool:
    """Write the birth record, unless there is one: then leave it unchanged and return False.

    Raises
    ------
    CheckpointError : the store refuses, or the settings are not plain JSON.
    """
    content = as_content(birth)
    return _files(root, birth.application, birth.generation).create(_NAME, seal(content, indent=2))


def as_content(birth: Birth) -> dict[str, Any]:
    """A birth record as plain JSON.

    Raises
    ------
    CheckpointError : the settings are not plain JSON.
    """
    content = asdict(birth)
    if birth.repartition is None:
        del content["repartition"]
    try:
        format_ = FORMAT if birth.repartition else 1
        return dict(json.loads(json.dumps({"format": format_, **content})))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"birth record of {birth.application}: settings are no JSON: {error}"
        ) from error


def read_birth(root: str, application: str, generation: int) -> Birth | None:
    """Read the birth record; None if this generation has none.

    Raises
    ------
    CheckpointError : the record is damaged or of a later format, or the store cannot be read.
    """
    files = _files(root, application, generation)
    place = f"{files.url}/{_NAME}"
    try:
        birth = from_content(unseal(files.read(_NAME), place), place)
        if (birth.application, birth.generation) != (application, generation):
            raise Damaged(f"{place}: belongs to {birth.application} generation {birth.generation}")
        return birth
    except FileNotFoundError:
        return None
    except Damaged as error:
        raise CheckpointError(
            f"{error}. Bring the file back from a copy; its generation cannot continue without it. "
            "Or read the log again in a new one: --new-generation --from-start"
        ) from error


def compare(birth: Birth, found: BirthFacts, command: str = "kinstream worker learner NAME") -> None:
    """Refuse to continue where the record differs from what is found.

    Parameters
    ----------
    command : that started this worker; the advice quotes it.

    Raises
    ------
    GenerationMismatch : names every difference, and the commands that resolve it.
    """
    cluster = list(cluster_differences(birth, found))
    settings = list(settings_differences(birth, found))
    if not cluster and not settings:
        return
    advice = []
    if cluster:
        advice.append(
            "If this is the wrong cluster or the wrong checkpoint store, correct KAFKA_BOOTSTRAP_SERVERS or "
            "the store; if topics were lost, restore them"
        )
        if any("was re-created" in difference for difference in cluster):
            advice.append(
                f"For a topic that was re-created the steps are in {RECIPE}, in an order that keeps every count exact"
            )
        if grown := max((p for _, p in _grown(birth, found)), default=0):
            advice.append(
                "If partitions were added, use them and keep the learned states: stop all workers, then "
                f"`kinstream topics repartition --partitions {grown}`"
            )
    if settings:
        advice.append("To continue this generation, restore the old settings")
    advice.append(
        f"To continue with what is found now, begin a new generation: `{command} --new-generation` starts where "
        f"this one ends, `{command} --new-generation --from-start` reads the log again (consumers then count "
        "again), `kinstream up --new-generation` does it for all workers"
    )
    listed = "".join(f"\n  - {difference}" for difference in cluster + settings)
    advised = "".join(f"\n  {sentence}." for sentence in advice)
    raise GenerationMismatch(
        f"{birth.application} generation {birth.generation} does not match its birth record:{listed}{advised}"
    )


def _files(root: str, application: str, generation: int) -> Files:
    return open_files(root, file_name(application), str(generation))


def from_content(content: Mapping[str, Any], place: str) -> Birth:
    """The inverse of `as_content`; `place` begins every message.

    Raises
    ------
    Damaged : it is not a birth record.
    CheckpointError : of a later format than this version knows, or of a generation that was promoted.
    """
    content = dict(content)
    try:
        found = int(content.pop("format"))
        if found > FORMAT:
            raise CheckpointError(f"{place}: format {found} is newer than {FORMAT}; use a newer Kinstream")
        if "promotion" in content:
            raise CheckpointError(
                f"{place}: the generation was begun by `models promote`, which was removed: begin another one with "
                "--new-generation --from-start; to try settings, run a second learner and let the gate choose"
            )
        content["start_offsets"] = {int(key): value for key, value in content["start_offsets"].items()}
        content["input_topic_id"] = known_id(content["input_topic_id"])
        content["output_topics"] = {
            name: TopicIdentity(known_id(topic["topic_id"]), topic["partitions"])
            for name, topic in content["output_topics"].items()
        }
        repartition = content.pop("repartition", None)
        return Birth(
            **content,
            repartition=None if repartition is None else Repartition(**repartition),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{place}: not a birth record: {error!r}") from error


def cluster_differences(birth: Birth, found: BirthFacts) -> Iterator[str]:
    """How the cluster differs from the record, as clauses."""
    if found.cluster_id != birth.cluster_id:
        yield f"another cluster: it began on {birth.cluster_id}, this is {found.cluster_id}"
    if found.input_topic != birth.input_topic:
        yield f"another input topic: it began on {birth.input_topic}, this is {found.input_topic}"
    else:
        began = TopicIdentity(birth.input_topic_id, birth.input_partitions)
        now = TopicIdentity(found.input_topic_id, found.input_partitions)
        yield from _topic_differences("input", birth.input_topic, began, now)
    for name in sorted(birth.output_topics.keys() | found.output_topics.keys()):
        if name not in found.output_topics:
            yield f"output topic {name} is gone"
        elif name not in birth.output_topics:
            yield f"output topic {name} did not exist when it began"
        else:
            yield from _topic_differences(
                "output", name, birth.output_topics[name], found.output_topics[name]
            )


def _grown(birth: Birth, found: BirthFacts) -> Iterator[tuple[str, int]]:
    """Topics with more partitions than in the record, and their numbers."""
    if found.input_topic == birth.input_topic and found.input_partitions > birth.input_partitions:
        yield found.input_topic, found.input_partitions
    for name, began in birth.output_topics.items():
        if name in found.output_topics and found.output_topics[name].partitions > began.partitions:
            yield name, found.output_topics[name].partitions


def _topic_differences(role: str, name: str, began: TopicIdentity, now: TopicIdentity) -> Iterator[str]:
    if began.topic_id and now.topic_id and began.topic_id != now.topic_id:
        yield f"{role} topic {name} was re-created: its id was {began.topic_id} and is {now.topic_id}"
    if began.partitions != now.partitions:
        yield f"{role} topic {name} had {began.partitions} partitions and has {now.partitions}"


def settings_differences(birth: Birth, found: BirthFacts) -> Iterator[str]:
    """Which settings differ from the record, as clauses."""
    if found.settings_digest == birth.settings_digest:
        return
    before, now = dict(_leaves(birth.settings)), dict(_leaves(_as_json(found.settings)))
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    for key in changed:
        what = _setting(birth.application, key)
        yield f"{what}: was {before.get(key, 'not set')}, is {now.get(key, 'not set')}"
    if not changed:
        yield "settings that have no readable form (the digest of all that shapes the outputs differs)"


def _setting(application: str, key: str) -> str:
    """What a user calls an entry of the record: the dotted name of a setting, as `--set` takes it."""
    if key in _NO_SETTING:
        return _NO_SETTING[key]
    if key in _ELSEWHERE:
        return f"setting {_ELSEWHERE[key]}"
    kind, _, name = application.partition("-")
    section = f"{_SECTIONS[kind]}.{name}" if name and kind in _SECTIONS else application
    return f"setting {section}.{key.removeprefix('arguments.').removeprefix('spaces.')}"


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and JSON texts, so that 1 and 1.0 and "1" differ. An empty table has no name of its own."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as read back from the record: tuples as lists, keys as strings."""
    try:
        return dict(json.loads(json.dumps(settings)))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"settings that shape the outputs are not plain JSON: {error}") from error
