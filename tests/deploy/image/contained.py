"""Becomes a container: mounts, a root of its own, and a user without rights; then runs the command in its place.

unshare --mount --pid --ipc --uts --fork python3 contained.py SPECIFICATION

The specification is a JSON file:
  root      folder of the image
  scratch   an empty folder, on which a file system in memory is mounted for what the image gets on top
  mounts    [source, target, "ro" or "rw"]
  tmpfs     [target, mode]
  host      its host name
  uid, gid, environment, folder, command
  rights    true: as root of this machine, for images of others
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
DEVICES: Final = ("null", "zero", "full", "random", "urandom")


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", "--no-mtab", *map(str, arguments)], check=True)


def prepare(told: dict[str, Any]) -> Path:
    """The root file system with all that is mounted into it; read-only but for the mounts."""
    scratch = Path(told["scratch"])
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", scratch)
    root, upper, work = scratch / "root", scratch / "upper", scratch / "work"
    for folder in (root, upper, work):
        folder.mkdir()
    mount("-t", "overlay", "-o", f"lowerdir={told['root']},upperdir={upper},workdir={work}", "overlay", root)
    for source, target, _ in told["mounts"]:
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            place.mkdir(exist_ok=True)
        else:
            place.touch()
    for target, _ in told["tmpfs"]:
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
    mount("-o", "remount,ro", root)
    mount("-t", "proc", "proc", root / "proc")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "dev")
    for device in DEVICES:
        (root / "dev" / device).touch()
        mount("--bind", Path("/dev", device), root / "dev" / device)
    (root / "dev" / "shm").mkdir()
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "dev" / "shm")
    for target, mode in told["tmpfs"]:
        mount("-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", root / target.lstrip("/"))
    for source, target, how in told["mounts"]:
        place = root / target.lstrip("/")
        mount("--bind", source, place)
        if how == "ro":
            mount("-o", "remount,bind,ro", place)
    return root


def give_up_rights(uid: int, gid: int) -> None:
    """Another user, no capability that an exec could give back, and no programs that bring rights of their own."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    capability = 0
    while prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def main(told: dict[str, Any]) -> None:
    socket.sethostname(told["host"])
    root = prepare(told)
    os.chroot(root)
    os.chdir(told["folder"])
    if not told["rights"]:
        give_up_rights(told["uid"], told["gid"])
    command = told["command"]
    os.execvpe(command[0], command, told["environment"])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
