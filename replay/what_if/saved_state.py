"""A replayed state in a folder: a checkpoint of every partition, and, written last, the record of its origin.

The checkpoints are ordinary ones, of generation 0, which no agent has, so their outputs were never emitted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kinstream.streams.agents.generations.birth import Birth, as_content, from_content
from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.files import Damaged, Files, without_secret
from kinstream.streams.checkpoints.folder import CheckpointFolder, manifest_name
from kinstream.streams.checkpoints.manifest import DataFile, LastRecord, Manifest, versions
from kinstream.streams.checkpoints.names import file_name, open_files, seal, unseal
from kinstream.streams.checkpoints.state_bytes import State, from_bytes
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.settings import Settings

FORMAT: Final = 1
#: Written last: without it there is no saved state.
RECORD: Final = "what-if.json"
#: Of the checkpoints.
GENERATION: Final = 0


@dataclass(frozen=True, slots=True)
class Decisions:
    """The operators' decisions for the learner on one partition, which the replay has followed."""

    skipped: frozenset[int]
    accepted_gaps: frozenset[int]


@dataclass(frozen=True, slots=True)
class SavedState:
    """The record of a saved state.

    Parameters
    ----------
    digest : of the record itself.
    learner : the replayed learner.
    birth : settings, cluster and topics of the replay; its start offsets are the offsets of the state.
    learned_from : per partition, where the replay began.
    inherited : partitions that began there with what `birth.inherits` names.
    beside : generation of the running learner at that time, or None.
    section : the learner's settings as in a settings file.
    manifests : sha256 of the manifest file of each partition.
    versions : of what computed it.
    """

    digest: str
    learner: str
    birth: Birth
    learned_from: Mapping[int, int]
    inherited: tuple[int, ...]
    beside: int | None
    section: Mapping[str, Any]
    manifests: Mapping[int, str]
    decisions: Mapping[int, Decisions]
    versions: Mapping[str, str]


class StateFolder:
    """A folder, or the URL of one in any fsspec store, for one saved state.

    Raises
    ------
    CheckpointError : the URL names no known kind of store.
    """

    def __init__(self, url: str) -> None:
        self._root = url
        self._files: Files = open_files(url)
        self.url = without_secret(url)

    # ---- writing ------------------------------------------------------------------------------------------------

    def check_free(self, settings: Settings, birth: Birth) -> None:
        """Refuse a folder that is not empty.

        Raises
        ------
        SettingsError : it holds a saved state, the remains of one, or the checkpoints of running agents.
        """
        if self._files.url == open_files(settings.checkpoints.url).url:
            raise SettingsError(
                f"--save {self.url}: agents have their checkpoints there; name another folder"
            )
        if RECORD in self._files.sizes(""):
            raise SettingsError(f"--save {self.url}: it already holds a saved state; name another folder")
        for partition in range(birth.input_partitions):
            if self._store(birth, partition).offsets():
                raise SettingsError(
                    f"--save {self.url}: it holds the remains of an interrupted replay; delete them, or name "
                    "another folder"
                )

    def write(
        self,
        birth: Birth,
        machines: Iterable[Machine],
        *,
        learner: str,
        learned_from: Mapping[int, int],
        inherited: Iterable[int],
        beside: int | None,
        section: Mapping[str, Any],
    ) -> SavedState:
        """Write the current machines of a replay, and then the record.

        Parameters
        ----------
        birth : its start offsets are taken from the machines.
        machines : one of each partition that was replayed. Their emitted positions are dropped, because no consumer
            has read the outputs.

        Raises
        ------
        CheckpointError : the store refuses, or another process has written there meanwhile.
        """
        offsets: dict[int, int] = {}
        manifests: dict[int, str] = {}
        decisions: dict[int, Decisions] = {}
        for machine in machines:
            p = machine.place.partition
            for name in machine.names():
                space = machine.find(name)
                if space is not None:
                    space.emitted = None
            manifest = self._save(birth, machine)
            offsets[p] = manifest.offset
            manifests[p] = self._manifest_digest(birth, p, manifest.offset)
            decisions[p] = Decisions(machine.place.skipped, machine.place.accepted_gaps)
        content = {
            "format": FORMAT,
            "learner": learner,
            "birth": as_content(_at(birth, offsets)),
            "learned_from": dict(learned_from),
            "inherited": sorted(inherited),
            "beside": beside,
            "section": dict(section),
            "manifests": manifests,
            "decisions": {
                p: {name: sorted(offsets) for name, offsets in asdict(decided).items()}
                for p, decided in decisions.items()
            },
            "versions": versions(),
        }
        if not self._files.create(RECORD, seal(content, indent=2)):
            raise CheckpointError(f"{self.url}: another process has saved a state there meanwhile")
        return self.read()

    def _save(self, birth: Birth, machine: Machine) -> Manifest:
        states = machine.space_states()
        segments = machine.segments(states)
        return self._store(birth, machine.place.partition).save(
            machine.next_offset,
            changed=states,
            unchanged={},
            partition=machine.partition_state(),
            last_record=None if machine.last_record is None else LastRecord(*machine.last_record),
            topic_id=birth.input_topic_id,
            labels=machine.labels(states),
            segments={
                space: {name: machine.segment(space, name) for name in names}
                for space, names in segments.items()
            },
        )

    def _store(self, birth: Birth, partition: int) -> CheckpointStore:
        return CheckpointStore(self._root, birth.application, GENERATION, birth.input_topic, partition)

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self) -> SavedState:
        """Read the record.

        Raises
        ------
        CheckpointError : it does not exist, is damaged, or has a later format.
        """
        place = f"{self.url}/{RECORD}"
        try:
            data = self._files.read(RECORD)
        except FileNotFoundError:
            raise CheckpointError(
                f"{place}: does not exist: nothing was saved in this folder, or the replay was interrupted. "
                "Run it again: kinstream replay --learner NAME --save FOLDER"
            ) from None
        content = unseal(data, place)
        try:
            found = int(content["format"])
            if found > FORMAT:
                raise CheckpointError(
                    f"{place}: format {found} is newer than {FORMAT}; use a newer Kinstream"
                )
            return SavedState(
                digest=hashlib.sha256(data).hexdigest(),
                learner=str(content["learner"]),
                birth=from_content(content["birth"], place),
                learned_from={int(p): int(at) for p, at in content["learned_from"].items()},
                inherited=tuple(int(p) for p in content["inherited"]),
                beside=content["beside"],
                section=dict(content["section"]),
                manifests={int(p): str(digest) for p, digest in content["manifests"].items()},
                decisions={
                    int(p): Decisions(frozenset(d["skipped"]), frozenset(d["accepted_gaps"]))
                    for p, d in content["decisions"].items()
                },
                versions=dict(content["versions"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"{place}: not the record of a saved state: {error!r}") from error

    def checkpoint(self, saved: SavedState, partition: int) -> Manifest:
        """The checkpoint of one partition, with every file of it verified.

        Raises
        ------
        CheckpointError : a file is missing, or differs from what was written.
        """
        folder = self._folder(saved.birth, partition)
        offset = saved.birth.start_offsets[partition]
        try:
            if self._manifest_digest(saved.birth, partition, offset) != saved.manifests[partition]:
                raise Damaged(f"{folder.url}/{manifest_name(offset)}: not the manifest that the record names")
            manifest = folder.manifest(offset)
            folder.verify(manifest)
        except FileNotFoundError as error:
            raise Damaged(f"{folder.url}: a file of the saved state is missing: {error}") from error
        return manifest

    def load(self, saved: SavedState, partition: int, file: DataFile) -> State:
        """Read a data file of a checkpoint.

        Raises
        ------
        CheckpointError : it is missing or damaged.
        """
        folder = self._folder(saved.birth, partition)
        try:
            return from_bytes(folder.content(file))
        except FileNotFoundError as error:
            raise Damaged(f"{folder.url}/{file.path}: gone") from error

    def _folder(self, birth: Birth, partition: int) -> CheckpointFolder:
        folders = (
            file_name(birth.application),
            str(GENERATION),
            f"{file_name(birth.input_topic)}-{partition}",
        )
        place = (birth.application, GENERATION, birth.input_topic, partition)
        return CheckpointFolder(open_files(self._root, *folders), place)

    def _manifest_digest(self, birth: Birth, partition: int, offset: int) -> str:
        files = self._folder(birth, partition).files
        return hashlib.sha256(files.read(manifest_name(offset))).hexdigest()


def _at(birth: Birth, offsets: Mapping[int, int]) -> Birth:
    return replace(birth, generation=GENERATION, start_offsets=offsets, created_ms=int(time.time() * 1000))
