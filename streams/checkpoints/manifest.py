"""The manifest of a checkpoint: its place in the log, its files and their digests."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.names import seal, unseal
from kinstream.streams.errors import CheckpointError

#: 3 if it names announced files, 2 if spaces have segments, else 1.
FORMAT: Final = 3

#: The data files of the segments of each space.
Segments = Mapping[str, Mapping[str, "DataFile"]]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable data file.

    Parameters
    ----------
    path : relative to the folder of the partition.
    label : a summary of its content, for readers of the manifest only; not part of its identity.
    """

    path: str
    sha256: str
    size: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record read before a checkpoint: shows whether the log is still the same one."""

    offset: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint of one partition.

    Parameters
    ----------
    offset : the input offset to read next.
    spaces : the data file of each space.
    segments : of spaces whose state is too large to write whole, the parts that never change.
    partition_state : the data file of the state that belongs to no space.
    topic_id : of the input topic, if the brokers have such ids.
    versions : versions of the libraries that computed the state; equal versions guarantee equal bits.
    announced : of spaces whose newest state is withheld from services, the data file that was announced last; None if
        none was. It is no part of the checkpoint: it stays as long as a manifest names it.
    """

    application: str
    generation: int
    topic: str
    partition: int
    offset: int
    spaces: Mapping[str, DataFile]
    partition_state: DataFile
    last_record: LastRecord | None
    topic_id: str | None
    versions: Mapping[str, str]
    written_ms: int
    segments: Segments = field(default_factory=dict)
    announced: Mapping[str, DataFile | None] = field(default_factory=dict)

    def files(self) -> Iterator[DataFile]:
        """Every data file, the partition's own first."""
        yield self.partition_state
        yield from self.spaces.values()
        for parts in self.segments.values():
            yield from parts.values()

    def digests(self) -> dict[str, str]:
        """The digest of every file of every space."""
        found = {space: file.sha256 for space, file in self.spaces.items()}
        for space, parts in self.segments.items():
            found |= {f"{space}, segment {name}": file.sha256 for name, file in parts.items()}
        return found

    def same_state(self, other: Manifest) -> bool:
        """Whether both hold the same state, in any store and written at any time."""
        return (
            self.offset == other.offset
            and self.last_record == other.last_record
            and self.partition_state.sha256 == other.partition_state.sha256
            and self.digests() == other.digests()
        )


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest file, with their own digest."""
    content = {name: getattr(manifest, name) for name in Manifest.__slots__}
    content["spaces"] = {space: _values(file) for space, file in manifest.spaces.items()}
    content["segments"] = {
        space: {name: _values(file) for name, file in parts.items()}
        for space, parts in manifest.segments.items()
    }
    content["announced"] = {
        space: None if file is None else _values(file) for space, file in manifest.announced.items()
    }
    for name in ("segments", "announced"):
        if not content[name]:
            del content[name]
    content["partition_state"] = _values(manifest.partition_state)
    content["last_record"] = asdict(manifest.last_record) if manifest.last_record else None
    content["versions"] = dict(manifest.versions)
    return seal({"format": 3 if manifest.announced else 2 if manifest.segments else 1, **content})


def decode_manifest(data: bytes, place: str) -> Manifest:
    """Read a manifest file; `place` begins every message.

    Raises
    ------
    Damaged : torn, truncated or changed, or it names files outside its folder.
    CheckpointError : of a later format than this version knows.
    """
    content = unseal(data, place)
    try:
        found = int(content.pop("format"))
        if found > FORMAT:
            raise CheckpointError(
                f"{place}: format {found} is newer than {FORMAT}; use the Kinstream that wrote it"
            )
        content["spaces"] = {space: _data_file(file) for space, file in content["spaces"].items()}
        content["segments"] = {
            space: {name: _data_file(file) for name, file in parts.items()}
            for space, parts in content.get("segments", {}).items()
        }
        content["announced"] = {
            space: None if file is None else _data_file(file)
            for space, file in content.get("announced", {}).items()
        }
        content["partition_state"] = _data_file(content["partition_state"])
        content["last_record"] = LastRecord(**content["last_record"]) if content["last_record"] else None
        return Manifest(**content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{place}: not a manifest: {error!r}") from error


def difference(found: Manifest, own: Manifest) -> str:
    """The differences between two manifests of one offset, as sentences."""
    theirs, ours = found.digests(), own.digests()
    spaces = sorted(space for space in theirs.keys() | ours.keys() if theirs.get(space) != ours.get(space))
    parts = [f"{len(spaces)} spaces differ ({', '.join(spaces[:5])})."] if spaces else []
    if found.partition_state.sha256 != own.partition_state.sha256:
        parts.append("The partition's own state differs.")
    if found.last_record != own.last_record:
        parts.append(f"Last record {found.last_record}, here {own.last_record}: not the same log.")
    changed = sorted(name for name in own.versions if found.versions.get(name) != own.versions[name])
    if changed:
        changes = ", ".join(
            f"{name} {found.versions.get(name)} then, {own.versions[name]} now" for name in changed
        )
        parts.append(f"Versions differ: {changes}.")
    return " ".join(parts)


@cache
def versions() -> dict[str, str]:
    """The versions of the libraries that compute states in this process. Do not change the result."""
    return {
        "kinstream": _version("kinstream"),
        "numpy": _version("numpy"),
        "numba": _version("numba"),
        "python": platform.python_version(),
        "cpu": _cpu(),
    }


def _values(file: DataFile) -> dict[str, str | int]:
    # Written out: `asdict` takes a second for ten thousand spaces.
    return {"path": file.path, "sha256": file.sha256, "size": file.size, "label": file.label}


def _data_file(values: dict[str, Any]) -> DataFile:
    file = DataFile(**values)
    if file.path.startswith("/") or ".." in file.path.split("/"):
        raise ValueError(f"the path {file.path!r} leads out of the folder")
    return file


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _cpu() -> str:
    """The target that numba compiles for, or that it compiles nothing."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return f"{platform.machine()}/interpreter"
    name = os.environ.get("NUMBA_CPU_NAME")
    if not name:
        try:
            from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            name = "unknown"
        else:
            name = get_host_cpu_name()
    return f"{platform.machine()}/{name}"
