"""A network of hosts with names, which no other program of this machine reaches: namespaces, joined by a bridge."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

CLONE_NEWNET: Final = 0x40000000
PREFIX: Final = "10.89.7."
T = TypeVar("T")


class Network:
    """A context manager that removes what it has made."""

    def __init__(self) -> None:
        self._name = f"ks{uuid4().hex[:6]}"
        self._hosts: dict[str, str] = {}
        self._made: list[str] = []

    def __enter__(self) -> Self:
        self._namespace(self._name)
        self._ip("-n", self._name, "link", "add", "bridge", "type", "bridge")
        self._ip("-n", self._name, "address", "add", f"{PREFIX}1/24", "dev", "bridge")
        self._ip("-n", self._name, "link", "set", "bridge", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def add(self, host: str) -> str:
        """A host with this name; its namespace."""
        number = len(self._hosts) + 2
        name, ours, theirs = f"{self._name}-{number}", f"port{number}", "eth0"
        self._namespace(name)
        self._ip("-n", self._name, "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        self._ip("-n", self._name, "link", "set", ours, "master", "bridge", "up")
        self._ip("-n", name, "address", "add", f"{PREFIX}{number}/24", "dev", theirs)
        self._ip("-n", name, "link", "set", theirs, "up")
        self._hosts[host] = f"{PREFIX}{number}"
        return name

    def hosts(self) -> str:
        """The content of /etc/hosts."""
        return "".join(
            f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **self._hosts}.items()
        )

    def address(self, host: str) -> str:
        return self._hosts[host]

    def inside(self, work: Callable[[], T]) -> T:
        """Do something on the bridge's side of the network, in a thread of its own."""
        found: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._enter()
                found.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return found[0]

    def _enter(self) -> None:
        """Move the calling thread."""
        handle = os.open(Path("/run/netns", self._name), os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(handle)

    def _namespace(self, name: str) -> None:
        self._ip("netns", "add", name)
        self._made.append(name)
        self._ip("-n", name, "link", "set", "lo", "up")

    @staticmethod
    def _ip(*arguments: Any) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
