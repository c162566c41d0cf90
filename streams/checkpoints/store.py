"""Checkpoints of one partition: state and input offset, written atomically and named by that offset.

Data files come first and the manifest last; a manifest counts only if every file that it names has the digest
that it states. Data files are immutable and carry the beginning of their digest in their name, so a stale owner
of the partition, which can only compute what the new owner computes, never disturbs it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kinstream.streams import failpoints
from kinstream.streams.checkpoints.files import Damaged, Missing
from kinstream.streams.checkpoints.folder import FOLDERS, CheckpointFolder, manifest_name
from kinstream.streams.checkpoints.manifest import (
    DataFile,
    LastRecord,
    Manifest,
    Segments,
    difference,
    encode_manifest,
    versions,
)
from kinstream.streams.checkpoints.names import file_name, open_files
from kinstream.streams.checkpoints.pruning import prune
from kinstream.streams.checkpoints.state_bytes import State, from_bytes, to_bytes
from kinstream.streams.compute.memory import written
from kinstream.streams.errors import CheckpointError

__all__ = ["CheckpointStore", "DataFile", "LastRecord", "Manifest", "Restored", "versions"]

#: How often a reader begins again when files disappear while it reads, before it raises an error.
_ATTEMPTS: Final = 20
#: A checkpoint of this size takes long enough to be logged before it is read or written.
LONG_BYTES: Final = 64 * 2**20

log = logging.getLogger("kinstream.checkpoints")


@dataclass(frozen=True, slots=True)
class Restored:
    """The newest whole checkpoint. Its spaces are verified, and loaded by `CheckpointStore.load_space`.

    Parameters
    ----------
    partition : the state that belongs to no space.
    notes : for each newer checkpoint that was skipped, its offset and its fault.
    """

    manifest: Manifest
    partition: State
    notes: tuple[str, ...]


class CheckpointStore:
    """The checkpoints of one partition under `<root>/<application>/<generation>/<topic>-<partition>/`.

    Parameters
    ----------
    root : a path, or the URL of any fsspec store.
    keep : how many complete checkpoints `prune` leaves.
    pinned : offset of another checkpoint to keep: that of the generation's beginning.
    clock : seconds since the epoch.
    """

    def __init__(
        self,
        root: str,
        application: str,
        generation: int,
        topic: str,
        partition: int,
        *,
        keep: int = 3,
        pinned: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if keep < 1:
            raise CheckpointError(f"keep must be at least 1, not {keep}")
        folders = (file_name(application), str(generation), f"{file_name(topic)}-{partition}")
        self._folder = CheckpointFolder(
            open_files(root, *folders), (application, generation, topic, partition)
        )
        self._keep = keep
        self._pinned = pinned
        self._clock = clock
        self._written: Manifest | None = None

    @property
    def url(self) -> str:
        """The location of the files of this partition."""
        return self._folder.url

    def location(self, file: DataFile) -> str:
        """The path or URL of a data file, for readers elsewhere."""
        return f"{self.url}/{file.path}"

    def save(
        self,
        offset: int,
        *,
        changed: Mapping[str, State],
        unchanged: Mapping[str, DataFile],
        partition: State,
        last_record: LastRecord | None,
        topic_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        segments: Mapping[str, Mapping[str, State]] | None = None,
        kept_segments: Segments | None = None,
        announced: Mapping[str, DataFile | None] | None = None,
    ) -> Manifest:
        """Write a checkpoint; on return it is durable and complete.

        Parameters
        ----------
        offset : the input offset to read next.
        changed : states of the spaces that changed since their last data file; taken one at a time.
        unchanged : the data files of the others.
        partition : the state that belongs to no space.
        labels : for changed spaces, a short text that the manifest repeats, to be read without the file.
        segments, kept_segments : of the spaces, segments to be written, and the data files of those already written.
        announced : as in `Manifest`.

        Returns
        -------
        Manifest : the checkpoint, or the equal one that another owner wrote before.

        Raises
        ------
        CheckpointError : the store refuses or is full; or it already holds another state for this offset.
        """
        if twice := changed.keys() & unchanged.keys():
            raise CheckpointError(f"{self.url}: spaces both changed and unchanged: {sorted(twice)[:5]}")
        files: dict[str | None, DataFile] = {}
        parts: dict[str, dict[str, DataFile]] = {
            space: dict(kept) for space, kept in (kept_segments or {}).items()
        }
        self._folder.files.write(
            chain(
                self._segments(segments or {}, parts),
                self._data(offset, changed, partition, labels or {}, files),
            ),
            lambda: failpoints.hit("checkpoint.between-space-files"),
        )
        partition_file = files.pop(None)
        spaces = {space: file for space, file in files.items() if space is not None} | dict(unchanged)
        manifest = Manifest(
            *self._folder.place,
            offset=offset,
            spaces=spaces,
            partition_state=partition_file,
            last_record=last_record,
            topic_id=topic_id,
            versions=versions(),
            written_ms=int(self._clock() * 1000),
            segments=parts,
            announced=dict(announced or {}),
        )
        failpoints.hit("checkpoint.before-manifest")
        if not self._folder.files.create(manifest_name(offset), encode_manifest(manifest)):
            manifest = self._settle(manifest)
        self._written = manifest
        failpoints.hit("checkpoint.after-manifest")
        return manifest

    def restore(self) -> Restored | None:
        """Find the newest checkpoint whose files are all complete; None if there is no manifest at all.

        Raises
        ------
        CheckpointError : there are checkpoints and none of them is complete, or the store cannot be read.
        """
        notes: list[str] = []
        for _ in range(_ATTEMPTS):
            offsets = self.offsets()
            if not offsets:
                return None
            notes.clear()
            for offset in reversed(offsets):
                failpoints.hit("checkpoint.during-restore")
                try:
                    manifest = self._folder.manifest(offset)
                    _log_long(f"{self.url}: checking the checkpoint at offset {offset}", manifest.files())
                    self._folder.verify(manifest)
                    partition = from_bytes(self._folder.content(manifest.partition_state))
                except Damaged as error:
                    notes.append(str(error))
                except FileNotFoundError as error:
                    now = self.offsets()
                    if offset not in now or now[-1] > offsets[-1]:
                        break  # its owner pruned meanwhile: begin again at the newest
                    notes.append(f"{self.url}: checkpoint at offset {offset}: missing: {error}")
                else:
                    return Restored(manifest, partition, tuple(notes))
            else:
                raise CheckpointError(
                    f"{self.url}: none of {len(offsets)} checkpoints can be read. Bring the files back from "
                    f"a copy, or begin a new generation (--new-generation). {'; '.join(notes)}"
                )
        raise CheckpointError(f"{self.url}: the checkpoints changed {_ATTEMPTS} times while they were read")

    def at(self, offset: int) -> Restored:
        """The checkpoint of that offset.

        Raises
        ------
        CheckpointError : it is missing or incomplete.
        """
        try:
            manifest = self._folder.manifest(offset)
            self._folder.verify(manifest)
            return Restored(manifest, from_bytes(self._folder.content(manifest.partition_state)), ())
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self.url}: checkpoint at offset {offset}: missing: {error}. Bring it back from a copy"
            ) from error

    def load_space(self, file: DataFile) -> State:
        """Read the state of a space.

        Raises
        ------
        Missing : the file does not exist.
        CheckpointError : it differs from the manifest.
        """
        try:
            return from_bytes(self._folder.content(file))
        except FileNotFoundError as error:
            raise Missing(f"{self.location(file)}: missing; bring it back from a copy") from error

    def offsets(self) -> list[int]:
        """The offsets of all manifests, damaged ones included, in rising order.

        Raises
        ------
        CheckpointError : the store cannot be read.
        """
        return self._folder.offsets()

    def sweep(self) -> None:
        """Delete the temporary files of killed writers.

        Raises
        ------
        CheckpointError : the store refuses.
        """
        for name in FOLDERS:
            self._folder.files.sweep(name)

    def prune(self) -> None:
        """Keep the newest `keep` complete checkpoints and everything newer, with every file that they name.

        Raises
        ------
        CheckpointError : the store refuses.
        """
        prune(self._folder, self._keep, self._clock(), self._pinned)

    def _data(
        self,
        offset: int,
        changed: Mapping[str, State],
        partition: State,
        labels: Mapping[str, str],
        into: dict[str | None, DataFile],
    ) -> Iterator[tuple[str, bytes]]:
        """The data files, one in memory at a time. Enters each into `into`, the partition's under None."""
        for space in (*sorted(changed), None):
            try:
                data = to_bytes(partition if space is None else changed[space])
            except (CheckpointError, MemoryError) as error:
                owner = "partition" if space is None else f"space {space!r}"
                raise CheckpointError(f"{self.url}: offset {offset}, {owner}: {error}") from error
            digest = hashlib.sha256(data).hexdigest()
            stem = "partition" if space is None else f"spaces/{file_name(space)}"
            label = "" if space is None else labels.get(space, "")
            into[space] = DataFile(
                f"{stem}@{offset:020d}-{digest[:12]}.safetensors", digest, len(data), label
            )
            yield into[space].path, data

    def _segments(
        self, segments: Mapping[str, Mapping[str, State]], into: dict[str, dict[str, DataFile]]
    ) -> Iterator[tuple[str, bytes]]:
        """The files of new segments, one in memory at a time. Enters each into `into`."""
        for space in sorted(segments):
            for name in segments[space]:
                try:
                    data = to_bytes(segments[space][name])
                except MemoryError as error:
                    raise CheckpointError(
                        f"{self.url}: segment {name} of space {space!r}: {error}"
                    ) from error
                digest = hashlib.sha256(data).hexdigest()
                path = f"segments/{file_name(space)}.{file_name(name)}-{digest[:12]}.safetensors"
                into.setdefault(space, {})[name] = DataFile(path, digest, len(data))
                yield path, data

    def _settle(self, manifest: Manifest) -> Manifest:
        """Another owner wrote a manifest for this offset: it must be equal, unless it is damaged."""
        if self._written is not None and self._written.same_state(manifest):
            return self._written
        try:
            found = self._folder.manifest(manifest.offset)
            same = found.same_state(manifest)
            if same:
                self._folder.verify(found)
        except (Damaged, FileNotFoundError):
            self._folder.files.write([(manifest_name(manifest.offset), encode_manifest(manifest))])
            return manifest
        if same:
            return found
        raise CheckpointError(
            f"{self.url}: the checkpoint at offset {manifest.offset} holds another state than this process "
            f"computed from the same log. {difference(found, manifest)} If the versions agree, something "
            "besides the log shapes the state."
        )


def _log_long(what: str, files: Iterable[DataFile]) -> None:
    """Log what is about to take long."""
    sizes = [file.size for file in files]
    if sum(sizes) >= LONG_BYTES:
        log.info("%s: %s in %d files", what, written(sum(sizes)), len(sizes))
