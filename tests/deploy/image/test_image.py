"""The image, built by buildah: what is in it, and that Kinstream works in it without rights under a read-only root."""

from __future__ import annotations

import json
import os
import re
import tomllib
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.charts import VALUES, settings_file, template
from tests.deploy.image.build import ROOT, Image
from tests.deploy.image.container import Specification, completed
from tests.docs.pages import blocks
from tests.traces.collector import collecting

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
#: Bytes of the whole image, unpacked.
LARGEST: Final = 600_000_000
SECONDS: Final = 300.0
#: What a minimal Debian, its Python and a machine that builds software have, and an image that only runs has not.
TOOLS: Final = re.compile(
    r"(pip|easy_install|apt|dpkg|perl|gcc|cc|ld|as|strip|make|git|curl|wget|mount|su|sudo|passwd)[\d.-]*\d*"
)
RIGHTS: Final = """
import os, pathlib, ssl
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getresuid(), os.getresgid(), os.getgroups())
print({name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")})
print("no new privileges:", status["NoNewPrivs"].strip())
for folder in ("", "/etc/kinstream", "/opt/kinstream", "/opt/kinstream/kernels", "/var/lib/kinstream", "/tmp"):
    name = f"{folder}/x"
    try:
        pathlib.Path(name).touch()
        print(name, "written")
    except OSError as error:
        print(name, error.strerror)
print("authorities:", ssl.create_default_context().cert_store_stats()["x509_ca"] > 50)
"""
FILES: Final = """
import gzip
import numpy, pyarrow, pyarrow.csv, pyarrow.parquet
from kinstream.producers.files.tables import open_table
table = pyarrow.table({"label": ["a", "b"] * 50, "x": numpy.arange(100.0)})
pyarrow.csv.write_csv(table, "/tmp/rows.csv")
open("/tmp/rows.csv.gz", "wb").write(gzip.compress(open("/tmp/rows.csv", "rb").read()))
pyarrow.parquet.write_table(table, "/tmp/rows.parquet")
pyarrow.parquet.write_table(table, "/tmp/rows.zstd.parquet", compression="zstd")
numpy.savez("/tmp/rows.npz", x=numpy.arange(100.0), label=numpy.arange(100) % 2)
found = []
for kind in ("csv", "csv.gz", "parquet", "zstd.parquet", "npz"):
    parts = open_table(f"/tmp/rows.{kind}").parts(["x"], 0)
    found.append(f"{kind} {sum(float(cell) for part in parts for cell in part.column('x').to_pylist())}")
print(", ".join(found))
"""
#: Exports a span by the settings that are its argument.
EXPORT: Final = """
import pathlib, sys
from kinstream.streams.settings import load
from kinstream.streams.traces.context import root_of
from kinstream.streams.traces.exporter import open_exporter
from kinstream.streams.traces.spans import Span
path = pathlib.Path("/tmp/kinstream.toml")
path.write_text(sys.argv[1])
exporter = open_exporter(load(path), "kinstream-chart")
exporter.add(Span("process t", "consumer", root_of("image"), None, 1, 2, {}))
exporter.close(10.0)
print("exported:", exporter.exported)
"""


def run(image: Image, folder: Path, *command: str, **environment: str) -> str:
    """A command in a container of the image: its output."""
    told = Specification(
        root=image.root,
        command=command,
        environment=image.environment | environment,
        folder="/tmp",
    )
    status, text = completed(told, folder, "container", SECONDS)
    assert status == 0, text[-3000:]
    return text


def prefix(image: Image) -> Path:
    return image.root / "opt" / "kinstream"


def installed(image: Image) -> dict[str, str]:
    """Version by name of every distribution, as its own metadata says."""
    found = {}
    for path in prefix(image).glob("venv/lib/python*/site-packages/*.dist-info/METADATA"):
        told = HeaderParser().parsestr(path.read_text(encoding="utf-8"), headersonly=True)
        found[plain(told["Name"])] = told["Version"]
    return found


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_is_small(image: Image) -> None:
    files = [path for path in image.root.rglob("*") if path.is_file() and not path.is_symlink()]
    total = sum(path.stat().st_size for path in files)
    parts: dict[str, int] = {}
    for path in files:
        inside = path.relative_to(image.root)
        found = re.match(r"opt/kinstream/venv/lib/[^/]+/site-packages/([^/]+)", inside.as_posix())
        part = found[1] if found else "/".join(inside.parts[:3])
        parts[part] = parts.get(part, 0) + path.stat().st_size
    listed = sorted(parts.items(), key=lambda one: -one[1])[:25]
    print("\n".join(f"{size / 1e6:8.1f} MB {part}" for part, size in listed))
    assert total <= LARGEST and image.size <= LARGEST, f"{total / 1e6:.0f} MB"


def test_it_has_no_shell_no_compiler_and_no_installer(image: Image) -> None:
    programs = {
        path.relative_to(image.root).as_posix()
        for path in image.root.rglob("*")
        if path.is_file() and os.access(path, os.X_OK) and path.parent.name in ("bin", "sbin", "libexec")
    }
    assert not [name for name in programs if TOOLS.fullmatch(Path(name).name) or name.endswith("sh")]
    outside = {name for name in programs if not name.startswith("opt/kinstream/")}
    assert all(re.fullmatch(r"usr/(local/)?bin/python3[\d.]*", name) for name in outside), outside
    assert not {"pip", "setuptools", "wheel", "cyclonedx-bom"} & installed(image).keys()
    with_rights = [path for path in image.root.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]
    assert with_rights == []


def test_nothing_can_be_written_but_checkpoints_work_and_tmp(image: Image) -> None:
    writable = [
        path.relative_to(image.root).as_posix()
        for path in image.root.rglob("*")
        if not path.is_symlink() and (path.stat().st_mode & 0o002 or path.stat().st_uid == 10001)
    ]
    assert sorted(writable) == ["tmp", "var/lib/kinstream", "work"]


def test_its_labels_are_those_of_the_open_container_initiative(image: Image) -> None:
    labels = {
        name.removeprefix("org.opencontainers.image."): value
        for name, value in image.config["Labels"].items()
        if name.startswith("org.opencontainers.image.")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert labels["title"] == "Kinstream" and labels["description"]
    assert labels["version"] == project["version"] == installed(image)["kinstream"]
    assert labels["licenses"] == project["license"]
    assert re.fullmatch(r"[0-9a-f]{40}", labels["revision"])
    assert (image.config["User"], image.config["WorkingDir"]) == ("10001:10001", "/etc/kinstream")
    assert (image.config["Entrypoint"], image.config["Cmd"]) == (["kinstream"], ["--help"])


def test_the_bill_of_materials_names_everything_that_is_installed(image: Image) -> None:
    bill: dict[str, Any] = json.loads((prefix(image) / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] >= "1.5"
    named: dict[str, dict[str, str]] = {"pypi": {}, "deb": {}, "generic": {}}
    for one in bill["components"]:
        kind = re.match(r"pkg:(\w+)/", one.get("purl") or "pkg:pypi/")
        assert kind is not None, one
        named[kind[1]][one["name"]] = one["version"]
    # Kinstream itself is what the bill is about.
    about = bill["metadata"]["component"]
    python = {plain(name): version for name, version in named["pypi"].items()} | {
        plain(about["name"]): about["version"]
    }
    assert python == installed(image)
    assert len(python) > 40
    (link,) = (prefix(image) / "venv" / "lib").iterdir()
    assert f"python{named['generic']['python']}".startswith(link.name)
    debs = {}
    for path in (image.root / "var/lib/dpkg/status.d").iterdir():
        told = HeaderParser().parsestr(path.read_text())
        debs[told["Package"]] = told["Version"]
        assert (image.root / "usr/share/doc" / told["Package"] / "copyright").exists()
    assert named["deb"] == debs
    assert {"libc6", "libssl3"} <= debs.keys()
    references = [one["bom-ref"] for one in bill["components"]]
    assert len(set(references)) == len(references)


def test_every_library_of_the_system_belongs_to_a_package_of_the_bill(image: Image) -> None:
    bill = json.loads((prefix(image) / "sbom.cdx.json").read_text())
    named = {one["name"] for one in bill["components"]}
    libraries = [path.name for path in (image.root / "usr" / "lib").glob("*-linux-gnu/*.so*")]
    assert len(libraries) > 10
    owners = {
        "libc.so.6": "libc6",
        "libssl.so.3": "libssl3",
        "libz.so.1": "zlib1g",
        "libgcc_s.so.1": "libgcc-s1",
    }
    assert owners.keys() <= set(libraries)
    assert set(owners.values()) <= named


def test_it_has_no_rights_and_its_root_is_read_only(image: Image, tmp_path: Path) -> None:
    told = run(image, tmp_path, "/opt/kinstream/venv/bin/python", "-c", RIGHTS).splitlines()
    assert told[0] == "(10001, 10001, 10001) (10001, 10001, 10001) []"
    assert told[1] == "{'CapInh': 0, 'CapPrm': 0, 'CapEff': 0, 'CapBnd': 0, 'CapAmb': 0}"
    assert told[2] == "no new privileges: 1"
    assert [line.partition(" ")[2] for line in told[3:8]] == ["Read-only file system"] * 5
    assert told[8:] == ["/tmp/x written", "authorities: True"]


def test_the_kernels_are_found_and_a_missing_one_is_compiled(image: Image, tmp_path: Path) -> None:
    kinds = (prefix(image) / "kernels.txt").read_text().split()
    assert {"mixture", "opml", "one-pass", "index"} <= set(kinds)
    told = run(image, tmp_path, "kinstream", "warm-up", "--jobs", "1", *kinds, NUMBA_DEBUG_CACHE="1")
    assert told.count("data loaded") > 30 and "data saved" not in told
    before = sorted(path.name for path in (prefix(image) / "kernels").rglob("*"))
    told = run(image, tmp_path, "kinstream", "warm-up", "--jobs", "1", "rdml", NUMBA_DEBUG_CACHE="1")
    assert "data saved to '/tmp/kinstream-kernels/" in told
    assert sorted(path.name for path in (prefix(image) / "kernels").rglob("*")) == before


def test_the_demonstration_runs_with_every_role_and_compiles_nothing(image: Image, tmp_path: Path) -> None:
    # Its folder is a volume, so that it can be read afterwards.
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 10001, 10001)
    told = Specification(
        root=image.root,
        command=["kinstream", "demo"],
        environment=image.environment | {"NUMBA_DEBUG_CACHE": "1"},
        mounts=[(str(work), "/var/lib/kinstream", "rw")],
        folder="/var/lib/kinstream",
    )
    status, text = completed(told, tmp_path, "demo", SECONDS)
    assert status == 0, text[-3000:]
    logs = {path.name: path.read_text() for path in (work / ".kinstream" / "demo" / "logs").glob("*.log")}
    assert "learner-opml.log" in logs and len(logs) >= 5
    assert any("data loaded" in log for log in logs.values())
    assert not [name for name, log in logs.items() if "data saved" in log]
    manifests = "".join(path.read_text(errors="replace") for path in work.rglob("*.json"))
    assert set(re.findall(r'"cpu":"[^/]+/([^"]*)"', manifests)) == {"generic"}


def test_files_of_every_kind_are_read(image: Image, tmp_path: Path) -> None:
    # pyarrow is in the image without the parts that Kinstream does not use.
    told = run(image, tmp_path, "/opt/kinstream/venv/bin/python", "-c", FILES)
    assert (
        told.splitlines()[-1] == "csv 4950.0, csv.gz 4950.0, parquet 4950.0, zstd.parquet 4950.0, npz 4950.0"
    )


def test_spans_are_exported_by_the_settings_of_the_chart(image: Image, tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "tracing.md", "yaml")
    values = tmp_path / "values.yaml"
    with collecting() as collector:
        values.write_text(block.text.replace("http://collector.monitoring:4318", collector.url))
        done = template(VALUES["minimal"], "--values", str(values))
        assert done.returncode == 0, done.stderr
        settings = settings_file(tuple(one for one in yaml.safe_load_all(done.stdout) if one))
        told = run(image, tmp_path, "/opt/kinstream/venv/bin/python", "-c", EXPORT, settings)
    assert told.splitlines()[-1] == "exported: 1"
    assert [service for service, _ in collector.spans] == ["kinstream-chart"]
