"""Custom resource definitions as their projects release them: KEDA, the Prometheus operator, Strimzi.

The first two are files of Go modules. Strimzi's are made by its own generator, which comes with Maven.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.deploy import go_toolchain
from tests.deploy.go_tools import ROOT
from tests.support.commands import output_of

CACHE: Final = ROOT / ".cache" / "definitions"
POM: Final = Path(__file__).with_name("pom.xml")
SECONDS: Final = 300.0


class Files(NamedTuple):
    """Files of a Go module, by name."""

    module: str
    version: str
    folder: str
    names: tuple[str, ...]


KEDA: Final = Files(
    "github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases", ("keda.sh_scaledobjects.yaml",)
)
PROMETHEUS: Final = Files(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "example/prometheus-operator-crd",
    ("monitoring.coreos.com_servicemonitors.yaml", "monitoring.coreos.com_prometheusrules.yaml"),
)
#: Kind -> class, and the version of the API that the chart uses.
STRIMZI: Final = {
    "KafkaTopic": "io.strimzi.api.kafka.model.topic.KafkaTopic",
    "KafkaUser": "io.strimzi.api.kafka.model.user.KafkaUser",
}
STRIMZI_API: Final = "v1"


def missing() -> str | None:
    """Which program is missing, or None."""
    found = [name for name in ("go", "mvn", "java") if shutil.which(name) is None]
    return f"not installed: {', '.join(found)}" if found else None


def bring() -> list[dict[str, Any]]:
    """All definitions, fetched if they are not there.

    Raises
    ------
    RuntimeError : Go, Maven or the generator failed; with the end of what it said.
    """
    wanted = f"{KEDA}\n{PROMETHEUS}\n{STRIMZI} {STRIMZI_API}\n{POM.read_text()}"
    complete = CACHE / "complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # Processes of pytest-xdist would fetch the same.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != wanted:
            for old in CACHE.glob("*.yaml"):
                old.unlink()
            _of_module(KEDA)
            _of_module(PROMETHEUS)
            _of_strimzi()
            complete.write_text(wanted)
    found = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(CACHE.glob("*.yaml"))]
    return [one for one in found if one]


def _of_module(files: Files) -> None:
    environment = go_toolchain.environment(ROOT / ".cache" / "go")
    told = _run(["go", "mod", "download", "-json", f"{files.module}@{files.version}"], environment)
    folder = Path(json.loads(told)["Dir"]) / files.folder
    for name in files.names:
        # The module cache is read-only.
        shutil.copyfile(folder / name, CACHE / name)


def _of_strimzi() -> None:
    jars = CACHE / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    _run(["mvn", "-q", "-B", "-f", str(POM), *copy], dict(os.environ))
    options = ["--yaml", "--api-versions", STRIMZI_API, "--storage-version", STRIMZI_API]
    files = [f"{path}={CACHE / f'kafka.strimzi.io_{kind.lower()}s.yaml'}" for kind, path in STRIMZI.items()]
    main = "io.strimzi.crdgenerator.CrdGenerator"
    _run(["java", "-cp", f"{jars}/*", main, *options, *files], dict(os.environ))


def _run(command: list[str], environment: dict[str, str]) -> str:
    # Outside of any module, whose go.mod would be read.
    return output_of(command, seconds=SECONDS, folder=Path("/"), environment=environment)


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(f"custom resource definitions: {reason}; their tests will be left out")
        sys.exit(0)
    print(f"custom resource definitions: {len(bring())} are here")
