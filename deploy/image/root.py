"""Makes the root file system of the image: the folder of Kinstream, the Python that runs it, and the libraries of both.

python3 root.py PREFIX ROOT

It has no shell, no package manager and no tools. Of a Debian package it holds the files that are used, its licence, and
its record in `var/lib/dpkg/status.d`, where scanners look. The same packages are added to PREFIX/sbom.cdx.json.
"""

from __future__ import annotations

import json
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

USER: Final = 10001
#: Of the standard library: tests, desktop programs, installers of packages, and modules for terminals and databases.
UNUSED: Final = (
    "__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data",
    "site-packages", "test", "tkinter", "turtledemo", "_ctypes_test*", "_curses*", "_dbm*", "_gdbm*",
    "_test*", "_tkinter*", "_xx*", "nis*", "readline*", "xxlimited*",
)  # fmt: skip
#: What libraries and Python read besides, where it is there.
DATA: Final = (
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/mime.types",
    "etc/nsswitch.conf",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/openssl.cnf",
    "usr/lib/locale/C.utf8",
    "usr/lib/os-release",
)
#: Folders that a container engine mounts something on, or that are written.
EMPTY: Final = ("dev", "etc/kinstream", "proc", "run", "sys")
#: Folders of the user: checkpoints, and what commands write where they are started, such as the progress of loads.
OWNED: Final = ("var/lib/kinstream", "work")


class Root:
    """A root file system that is put together from files of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Real files of this machine that were copied.
        self.origins: set[Path] = set()

    def place(self, path: Path) -> Path:
        """Where a file of this machine goes; folders that are links here are links there."""
        real = path.parent.resolve() / path.name
        target = self.folder / real.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def add(self, path: Path) -> None:
        """A file, without the links that lead to it, or a folder."""
        target = self.place(path)
        if path.is_dir():
            shutil.copytree(
                path, target, ignore=shutil.ignore_patterns(*UNUSED), ignore_dangling_symlinks=True
            )
            self.origins |= {
                one.resolve() for one in path.rglob("*") if (target / one.relative_to(path)).is_file()
            }
        else:
            shutil.copy2(path, target)
            self.origins.add(path.resolve())


def python_links(path: Path) -> Iterator[Path]:
    """The links from the interpreter of an environment to the program, and the program."""
    while path.is_symlink():
        path = path.parent / os.readlink(path)
        yield path


def libraries(files: Iterable[Path], without: Path) -> set[Path]:
    """What programs and libraries are linked to, the loader included, outside of a folder.

    Raises
    ------
    RuntimeError : a library is missing.
    """
    found: set[Path] = set()
    command = ["ldd", *map(str, sorted(files))]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in told.splitlines():
        if "not found" in line:
            raise RuntimeError(f"a library is missing: {line.strip()}")
        linked = re.search(r"(?:=> |^\s+)(/\S+) \(0x", line)
        if linked and not Path(linked[1]).resolve().is_relative_to(without):
            found.add(Path(linked[1]))
    return found


def make(prefix: Path, folder: Path) -> Root:
    root = Root(folder)
    folder.mkdir(parents=True)
    for name in ("lib", "lib64"):
        if Path("/", name).is_symlink():
            (folder / name).symlink_to(os.readlink(Path("/", name)))
    shutil.copytree(prefix, folder / prefix.relative_to("/"), symlinks=True)
    for path in python_links(prefix / "venv" / "bin" / "python"):
        if path.is_relative_to(prefix):
            continue
        if path.is_symlink():
            root.place(path).symlink_to(os.readlink(path))
        else:
            root.add(path)
    stdlib = Path(sysconfig.get_path("stdlib"))
    root.add(stdlib)
    # Libraries in a folder NAME.libs are found by the modules of their package, not alone.
    modules = [
        path
        for top in (folder / stdlib.relative_to("/"), prefix)
        for path in top.rglob("*.so*")
        if not path.parent.name.endswith(".libs")
    ]
    program = Path(sys.executable).resolve()
    for path in sorted(libraries([program, *modules], prefix)):
        root.add(path)
    for name in DATA:
        if Path("/", name).exists():
            root.add(Path("/", name))
    compile_stdlib(root, prefix, stdlib)
    accounts(folder)
    subprocess.run(["ldconfig", "-r", str(folder)], check=True)
    return root


def compile_stdlib(root: Root, prefix: Path, stdlib: Path) -> None:
    """Bytecode of the modules that Kinstream imports, as `imported.py` has listed them."""
    for line in (prefix / "imported.txt").read_text(encoding="utf-8").splitlines():
        source = root.folder / Path(line).relative_to("/")
        if Path(line).is_relative_to(stdlib) and source.exists():
            py_compile.compile(str(source), dfile=line, doraise=True)


def accounts(folder: Path) -> None:
    for name in EMPTY:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in OWNED:
        (folder / name).mkdir(parents=True)
        os.chown(folder / name, USER, USER)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    nologin = "/usr/sbin/nologin"
    users = f"root:x:0:0:root:/root:{nologin}\nkinstream:x:{USER}:{USER}::/tmp:{nologin}\n"
    (folder / "etc" / "passwd").write_text(users, encoding="utf-8")
    (folder / "etc" / "group").write_text(f"root:x:0:\nkinstream:x:{USER}:\n", encoding="utf-8")


def packages(files: Iterable[Path]) -> list[dict[str, str]]:
    """The Debian packages of files: their records, as dpkg keeps them."""
    names = {str(path) for path in files}
    # Where /lib is a link to /usr/lib, packages still own files by either name.
    names |= {name.removeprefix("/usr") for name in names if name.startswith("/usr/lib")}
    told = subprocess.run(["dpkg", "-S", *sorted(names)], capture_output=True, text=True, check=False).stdout
    owners = sorted({line.split(": ")[0].split(", ")[0] for line in told.splitlines() if ": /" in line})
    found = []
    for owner in owners:
        record = subprocess.run(["dpkg", "-s", owner], capture_output=True, text=True, check=True).stdout
        fields = dict(re.findall(r"^(Package|Version|Architecture): (.+)$", record, re.M))
        found.append({**fields, "record": record})
    return found


def document(root: Root, debs: list[dict[str, str]]) -> None:
    """The records and licences of the packages."""
    for deb in debs:
        status = root.folder / "var" / "lib" / "dpkg" / "status.d" / deb["Package"]
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text(deb["record"], encoding="utf-8")
        licence = Path("/usr/share/doc", deb["Package"], "copyright")
        if licence.exists():
            target = root.folder / licence.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(licence, target)


def complete(bill: Path, debs: list[dict[str, str]]) -> None:
    """Add Python and the Debian packages to the bill of materials of the environment."""
    found: dict[str, Any] = json.loads(bill.read_text(encoding="utf-8"))
    release = platform.freedesktop_os_release()
    system = f"{release['ID']}-{release.get('VERSION_ID', '')}".strip("-")
    python = platform.python_version()
    added = [
        {"type": "platform", "name": "python", "version": python, "purl": f"pkg:generic/python@{python}"}
    ]
    for deb in debs:
        name, version, machine = deb["Package"], deb["Version"], deb["Architecture"]
        known = version.replace("+", "%2B").replace(":", "%3A")
        purl = f"pkg:deb/{release['ID']}/{name}@{known}?arch={machine}&distro={system}"
        added.append({"type": "library", "name": name, "version": version, "purl": purl})
    found["components"] += [{**one, "bom-ref": one["purl"]} for one in added]
    # Another content, another number; the same for the same content.
    found.pop("serialNumber", None)
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))
    found["serialNumber"] = f"urn:uuid:{number}"
    bill.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(prefix: Path, folder: Path) -> None:
    root = make(prefix, folder)
    debs = packages(root.origins)
    document(root, debs)
    complete(folder / prefix.relative_to("/") / "sbom.cdx.json", debs)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
