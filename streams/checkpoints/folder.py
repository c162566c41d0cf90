"""Reads the folder of one partition: its manifests, and whether their files are complete."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kinstream.streams.checkpoints.files import Damaged, Files
from kinstream.streams.checkpoints.manifest import DataFile, Manifest, decode_manifest

_MANIFEST: Final = re.compile(r"(\d{20})\.manifest\.json")
#: Those with files of a partition; "" is its own.
FOLDERS: Final = ("", "spaces", "segments")
_READERS: Final = 8
#: Small files one by one would cost more in switches between threads than in reading.
_PER_TASK: Final = 16


def manifest_name(offset: int) -> str:
    return f"{offset:020d}.manifest.json"


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The files of one partition.

    Parameters
    ----------
    files : of the folder.
    place : (application, generation, topic, partition) that its manifests must name.
    """

    files: Files
    place: tuple[str, int, str, int]

    @property
    def url(self) -> str:
        return self.files.url

    def offsets(self) -> list[int]:
        """The offsets of all manifests, damaged ones included, in rising order."""
        return sorted(int(match[1]) for match in map(_MANIFEST.fullmatch, self.files.sizes("")) if match)

    def manifest(self, offset: int) -> Manifest:
        """Read a manifest.

        Raises
        ------
        Damaged : not whole, or it belongs elsewhere.
        FileNotFoundError : gone.
        """
        name = manifest_name(offset)
        manifest = decode_manifest(self.files.read(name), f"{self.url}/{name}")
        found = (manifest.application, manifest.generation, manifest.topic, manifest.partition)
        if found != self.place or manifest.offset != offset:
            raise Damaged(f"{self.url}/{name}: belongs to {found} at offset {manifest.offset}")
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Compare every file of a manifest with its digest.

        Raises
        ------
        Damaged : a file differs from what was written.
        FileNotFoundError : a file is missing.
        """
        pool = ThreadPoolExecutor(_READERS)
        try:
            files = list(manifest.files())
            parts = (files[start : start + _PER_TASK] for start in range(0, len(files), _PER_TASK))
            for _ in pool.map(self._check, parts):
                pass
        finally:
            pool.shutdown(cancel_futures=True)

    def content(self, file: DataFile) -> bytes:
        """The bytes of a data file. Raises as `verify`."""
        data = self.files.read(file.path, file.size)
        self._compare(file, hashlib.sha256(data).hexdigest(), len(data))
        return data

    def data_sizes(self) -> dict[str, int]:
        """Every data file with its size, named by a manifest or not."""
        sizes = {f"spaces/{name}": size for name, size in self.files.sizes("spaces").items()}
        sizes |= {f"segments/{name}": size for name, size in self.files.sizes("segments").items()}
        sizes.update(self.files.sizes(""))
        return {path: size for path, size in sizes.items() if path.endswith(".safetensors")}

    def _check(self, files: list[DataFile]) -> None:
        for file in files:
            self._compare(file, *self.files.digest(file.path, file.size))

    def _compare(self, file: DataFile, digest: str, size: int) -> None:
        place = f"{self.url}/{file.path}"
        if size != file.size:
            raise Damaged(f"{place}: has {size} bytes, and {file.size} were written")
        if digest != file.sha256:
            raise Damaged(f"{place}: its digest differs from the one that was written")
