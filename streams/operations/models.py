"""The newest model of every space and learner, from `kinstream.models` or straight from checkpoints."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fsspec.core import split_protocol, url_to_fs  # type: ignore[import-untyped, unused-ignore]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped, unused-ignore]

from kinstream.streams.agents.generations.birth import Birth, read_birth
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.space_facts import SpaceFacts, announced_version, model_version
from kinstream.streams.checkpoints.files import MAX_STATE_BYTES, Damaged, Missing
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.names import file_name
from kinstream.streams.compute.memory import ask
from kinstream.streams.errors import BadRecord, CheckpointError, SettingsError
from kinstream.streams.operations.checkpoints import Agent, Seen, agents, birth_of, checkpoints, folder_of
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.gate import GateDecision
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.withheld import Withheld
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings

#: Kinds of stores that a record may point to. The writer of the record must not choose a web server, an archive or a
#: chain of both for the reader.
STORES: Final = frozenset(
    {"file", "local", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "oss", "oci"}
)
#: Longest URL of a data file.
_MAX_LOCATION: Final = 4_096
#: Control characters and halves of surrogate pairs.
_UNNAMEABLE: Final = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
Models = dict[tuple[str, str], ModelVersion]


class Refused(CheckpointError):
    """A model record names no location, or one that is not allowed."""


@dataclass(slots=True)
class NewestModels:
    """The highest (generation, epoch, step) of each (space, learner). A delete is one that is gone."""

    unreadable: list[str] = field(default_factory=list)
    #: Newer models that their learners withhold, as checkpoints say.
    withheld: dict[tuple[str, str], Withheld] = field(default_factory=dict)
    _found: Models = field(default_factory=dict)

    def take(self, version: ModelVersion) -> None:
        if version.epoch < 0:
            return  # only a refused block has named that space
        key = (version.space, version.learner)
        if key not in self._found or _rank(self._found[key]) <= _rank(version):
            self._found[key] = version

    def read(self, messages: Iterable[Message]) -> None:
        """Take every model record, and note unreadable ones. Tombstones and decisions of the gate are ignored."""
        for message in messages:
            if message.value is None:
                continue
            try:
                version = decode(message.value, ModelVersion, GateDecision)
            except BadRecord as error:
                self.unreadable.append(
                    f"{message.topic} partition {message.partition} offset {message.offset}: {error}"
                )
                continue
            if isinstance(version, ModelVersion):
                self.take(version)

    def models(self) -> Models:
        """The models that are not deleted, by space and learner."""
        return {key: version for key, version in sorted(self._found.items()) if not version.deleted}


def _rank(version: ModelVersion) -> tuple[int, int, int, int]:
    # Announcements of one step repeat; the furthest checkpoint is the one that is kept longest.
    return version.generation, version.epoch, version.step, version.offset


def from_checkpoints(settings: Settings) -> NewestModels:
    """The models of the settings' learners as their newest checkpoints hold them. Needs no brokers.

    Of a learner that withholds its newest model, it is the last one that was announced; if there is none, the newest.

    Raises
    ------
    CheckpointError : a checkpoint cannot be read.
    """
    newest = NewestModels()
    for agent in agents(settings):
        if agent.role == "learner":
            for found in checkpointed(settings, agent):
                newest.take(found.announced or found.newest)
                if found.withheld is not None:
                    newest.withheld[found.newest.space, found.newest.learner] = found.withheld
    return newest


class Checkpointed(NamedTuple):
    """A model of a checkpoint.

    Parameters
    ----------
    newest : as the learner has it.
    announced : what services use: the same, or the last one announced while it is withheld; None if there is none.
    withheld : the note that the newest one is withheld; None if it is not.
    """

    newest: ModelVersion
    announced: ModelVersion | None
    withheld: Withheld | None


def checkpointed(settings: Settings, learner: Agent) -> Iterator[Checkpointed]:
    """The models that one learner's newest checkpoints hold, of its pinned or newest generation.

    Raises
    ------
    CheckpointError : a checkpoint cannot be read.
    """
    birth = birth_of(settings, learner)
    if birth is not None:
        for seen in checkpoints(settings, learner):
            yield from _versions(seen, learner.name, str(birth.settings.get("algorithm", "?")))


def _versions(seen: Seen, learner: str, algorithm: str, only: str | None = None) -> Iterator[Checkpointed]:
    """The models of a checkpoint; `only` names a space."""
    manifest, url = seen.manifest, seen.folder.url
    for space, file in manifest.spaces.items():
        if only not in (None, space):
            continue
        facts, location = SpaceFacts.parse(file.label), f"{url}/{file.path}"
        yield Checkpointed(
            model_version(manifest, space, facts, learner=learner, algorithm=algorithm, location=location),
            announced_version(manifest, space, learner=learner, algorithm=algorithm, url=url),
            facts.withheld(manifest.generation) if space in manifest.announced else None,
        )


def kept_at(
    settings: Settings, known: ModelVersion, generation: int, epoch: int, step: int
) -> ModelVersion | None:
    """A model of the space and learner of a known one, if a checkpoint that is still kept has it.

    It is searched in our own checkpoint store, and in the one that the known model names.

    Raises
    ------
    Refused, CheckpointError : as `data_of`.
    """
    own, root = settings.checkpoints.url, _root_of(known)
    roots = [own]
    if root is not None and root != own:
        _check(known)
        _refuse(root, own)
        roots.append(root)
    for url in roots:
        changed = settings.checkpoints.model_copy(update={"url": url})
        there = settings.model_copy(update={"checkpoints": changed})
        application = f"learner-{known.learner}"
        birth = read_birth(url, application, generation)
        partitions = [known.partition] if birth is None else range(birth.input_partitions)
        topic = known.topic if birth is None else birth.input_topic
        algorithm = known.algorithm if birth is None else str(birth.settings.get("algorithm", "?"))
        for partition in partitions:
            folder = folder_of(there, application, generation, topic, partition)
            for offset in reversed(folder.offsets()):
                try:
                    manifest = folder.manifest(offset)
                except (CheckpointError, FileNotFoundError):
                    continue  # damaged, or pruned since
                for found in _versions(Seen(folder, manifest), known.learner, algorithm, known.space):
                    for one in (found.newest, found.announced):
                        if (
                            one is not None
                            and not one.deleted
                            and _rank(one)[:3] == (generation, epoch, step)
                        ):
                            return one
    return None


def withheld_after(version: ModelVersion, settings: Settings) -> Withheld | None:
    """The model of the newest checkpoint of a model's space, if it is worse there than the best un-learned metric."""
    application = f"learner-{version.learner}"
    section = settings.learners.get(version.learner)
    pinned = None if section is None else section.generation
    generation = pinned or newest_generation(settings, application) or version.generation
    own = folder_of(settings, application, generation, version.topic, version.partition)
    for offset in reversed(own.offsets()):
        try:
            file = own.manifest(offset).spaces.get(version.space)
        except (CheckpointError, FileNotFoundError):
            continue
        facts = None if file is None else SpaceFacts.parse(file.label)
        return facts.withheld(generation) if facts is not None and facts.worse else None
    return None


def find(models: Models, space: str, learner: str | None) -> ModelVersion:
    """The model of a space; the learner may be left out if there is only one.

    Raises
    ------
    SettingsError : there is none, or there are several and none was named.
    """
    found = {name: v for (owner, name), v in models.items() if owner == space}
    if learner is not None and learner in found:
        return found[learner]
    if learner is None and len(found) == 1:
        return next(iter(found.values()))
    if not found:
        known = sorted({owner for owner, _ in models})
        others = f"; there are models of {', '.join(known[:20])}" if known else ", nor of any other space"
        raise SettingsError(f"there is no model of space {space!r}{others}")
    wanted = "choose one with --learner" if learner is None else f"not {learner!r}"
    raise SettingsError(f"space {space!r} has models of {', '.join(sorted(found))}: {wanted}")


def data_of(version: ModelVersion, settings: Settings) -> bytes:
    """The bytes of a model's data file, checked against the digest in the model record.

    It is read from our own checkpoint store first, which may be mounted elsewhere on the worker's machine.

    Raises
    ------
    Missing : the file does not exist.
    Damaged : it differs from the announced digest.
    Refused : the record names a kind of store that is not allowed, or no place at all.
    CheckpointError : the store fails.
    """
    _check(version)
    own = folder_of(
        settings, f"learner-{version.learner}", version.generation, version.topic, version.partition
    )
    name = version.location.rsplit("/", 1)[-1]
    place = f"{own.url}/spaces/{name}"
    try:
        data = own.files.read(f"spaces/{name}", MAX_STATE_BYTES)
    except FileNotFoundError:
        place = version.location
        data = _fetched(place, settings.checkpoints.url)
    if hashlib.sha256(data).hexdigest() != version.sha256:
        raise Damaged(f"{place}: its digest differs from the announced one; the file is damaged")
    return data


def birth_behind(version: ModelVersion, settings: Settings) -> Birth | None:
    """The birth record of a model's generation; None if there is none.

    It is read from our own checkpoint store first, then from the one that the model record names.

    Raises
    ------
    Refused, CheckpointError : as `data_of`.
    """
    _check(version)
    application = f"learner-{version.learner}"
    birth = read_birth(settings.checkpoints.url, application, version.generation)
    root = _root_of(version)
    if birth is not None or root is None:
        return birth
    _refuse(version.location, settings.checkpoints.url)
    return read_birth(root, application, version.generation)


def _root_of(version: ModelVersion) -> str | None:
    """The checkpoint store of a model, if its location has the form that workers write."""
    folder = f"{file_name(version.topic)}-{version.partition}"
    names = [file_name(f"learner-{version.learner}"), str(version.generation), folder, "spaces"]
    root, *found = version.location.rsplit("/", len(names) + 1)
    return root if root and found[:-1] == names else None


def _fetched(location: str, own: str) -> bytes:
    _refuse(location, own)
    try:
        system, path = url_to_fs(location)
        if isinstance(system, LocalFileSystem):
            folder, name = os.path.split(path)
            return LocalFiles(folder).read(name, MAX_STATE_BYTES)
        size = system.size(path) or 0
        if size > MAX_STATE_BYTES:
            raise Damaged(f"{location}: has more than {MAX_STATE_BYTES} bytes")
        ask(size)
        with system.open(path, "rb") as file:
            data = bytes(file.read(MAX_STATE_BYTES + 1))
    except (CheckpointError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise Missing(
            f"{location}: does not exist. A newer model may have replaced it: try again. Or the checkpoint store "
            "is mounted elsewhere: --set checkpoints.url=URL"
        ) from error
    except Exception as error:  # each store brings its own errors
        raise CheckpointError(f"{location}: {hide(str(error))}") from error
    if len(data) > MAX_STATE_BYTES:
        raise Damaged(f"{location}: has more than {MAX_STATE_BYTES} bytes")
    return data


def _check(version: ModelVersion) -> None:
    """Refuse a record without a valid location. The name is shown as a literal: it may hold control characters."""
    place = version.location
    if not 0 < len(place) <= _MAX_LOCATION or _UNNAMEABLE.search(place):
        raise Refused(f"a model record has no valid location: {place[:200]!r}")


def _refuse(location: str, own: str) -> None:
    kind = _kind(location)
    if kind not in STORES and kind != _kind(own):
        raise Refused(
            f"{location}: a model record has a location of kind {kind!r}, and only checkpoint stores are read: "
            f"{', '.join(sorted(STORES))}, or the kind of checkpoints.url"
        )


def _kind(url: str) -> str:
    """The kind of store that a URL names; of a chain, all of it."""
    if "::" in url:
        return url.rpartition("::")[0] + "::"
    # As the library that opens it sees it: not every kind is written with ://.
    return str(split_protocol(url)[0] or "file")


def computed_with(version: ModelVersion, settings: Settings) -> dict[str, str]:
    """The versions that the model's checkpoint was computed with; empty if that checkpoint is gone."""
    own = folder_of(
        settings, f"learner-{version.learner}", version.generation, version.topic, version.partition
    )
    try:
        return dict(own.manifest(version.offset).versions)
    except (CheckpointError, FileNotFoundError):
        return {}
