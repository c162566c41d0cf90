"""Volumes as a container sees them, in a mount namespace of this machine, and what a service can write in them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kinstream.streams.operations.checkpoints import folder_of
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import Settings

#: Where containers have the checkpoint store.
STORE: Final = "/var/lib/kinstream"
DATA: Final = b"a map"
VERSION: Final = ModelVersion(
    *("shop", "opml", "opml/1", 1, 0, 3, "kinstream.constraints", 0, 3),
    *(f"{STORE}/opml-3.safetensors", hashlib.sha256(DATA).hexdigest(), 0),
)
#: What a service with a gate does with the store, and then an attempt to write beside that.
SERVICE: Final = """
import json, sys
from kinstream.search.models.model_copies import KeptModels
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.codec.codec import decode_model
from kinstream.streams.settings import Settings

def fault(call, *arguments):
    try:
        call(*arguments)
    except CheckpointError as error:
        return error.__cause__.strerror

version = decode_model(bytes.fromhex(sys.argv[2]))
copies = KeptModels(Settings(checkpoints={"url": sys.argv[1]}), version.space, version.learner)
told = {"copies": fault(copies.keep, version)}
for folder in ("learner-opml", "gate", "new"):
    told[folder] = fault(open_files(sys.argv[1], folder).create, "x", b"x")
print(json.dumps(told))
"""


class Mount(NamedTuple):
    """A folder of the volume, "" for all of it, and where a container has it."""

    folder: str
    target: str
    read_only: bool


class Volume:
    """A checkpoint volume with a learner's model in it, on this machine.

    Parameters
    ----------
    folder : it must be empty.
    """

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
            reason = "mounts need root with the right to make namespaces"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        self._volume, self._place = folder / "volume", folder / "container"
        self._place.mkdir()
        (self._volume / "gate").mkdir(parents=True)
        url = str(self._volume)
        own = folder_of(
            Settings.model_validate({"checkpoints": {"url": url}}), "learner-opml", 1, VERSION.topic, 0
        )
        own.files.create(f"spaces/{VERSION.location.rpartition('/')[2]}", DATA)

    def run(self, mounts: Iterable[Mount], python: Sequence[str]) -> str:
        """Run Python as a container with these mounts would; paths in its arguments are those of the container."""
        steps = []
        for folder, target, read_only in mounts:
            place = self._inside(target)
            steps.append(f"mount --bind '{self._volume / folder}' '{place}'")
            if read_only:
                steps.append(f"mount -o remount,bind,ro '{place}'")
        shell = "\n".join([*steps, 'exec "$@"'])
        command = [sys.executable, *map(self._inside, python)]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", shell, "sh", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def faults(self, mounts: Iterable[Mount]) -> dict[str, str | None]:
        """What keeps a service from copying models, and from writing to other folders; None where it can."""
        told: dict[str, str | None] = json.loads(
            self.run(mounts, ["-c", SERVICE, STORE, encode(VERSION).hex()])
        )
        return told

    def _inside(self, text: str) -> str:
        return text.replace(STORE, str(self._place))
