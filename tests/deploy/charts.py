"""The chart as data: rendered with a file of values, and its documents by kind and name."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.go_tools import HELM, ROOT, tool

CHART: Final = ROOT / "deploy" / "helm" / "kinstream"
#: Files of values that the chart is rendered with, by what they stand for.
VALUES: Final = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))
}
RELEASE: Final = "blue"
NAMESPACE: Final = "ml"

Document = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm to its end."""
    command = [str(tool(HELM)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def template(values: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`helm template`; `more` comes after the file of values."""
    place = ["--namespace", NAMESPACE, "--kube-version", "1.34.0"]
    return helm("template", RELEASE, str(CHART), *place, "--values", str(values), *more)


@cache
def rendered(name: str, *more: str) -> tuple[Document, ...]:
    """All documents of a rendering that succeeds. Do not change them."""
    done = template(VALUES[name], *more)
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def refusal(*more: str, name: str = "minimal") -> str:
    """What Helm says to values that it must refuse."""
    done = template(VALUES[name], *more)
    assert done.returncode != 0
    return done.stderr


def of_kind(kind: str, documents: tuple[Document, ...]) -> dict[str, Document]:
    """The documents of a kind, by name."""
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def pods(documents: tuple[Document, ...]) -> dict[str, Document]:
    """`spec` of the pods of every Deployment and Job, by the name of that."""
    owners = of_kind("Deployment", documents) | of_kind("Job", documents)
    return {name: owner["spec"]["template"]["spec"] for name, owner in owners.items()}


def container(pod: Document) -> Document:
    """The one container of a pod."""
    (found,) = pod["containers"]
    return dict(found)


def environment(pod: Document) -> dict[str, str]:
    """Names and values of the variables that a pod is given."""
    return {one["name"]: one["value"] for one in container(pod)["env"]}


def settings_file(documents: tuple[Document, ...]) -> str:
    """The kinstream.toml that all pods are given."""
    (found,) = (
        one["data"]["kinstream.toml"]
        for one in of_kind("ConfigMap", documents).values()
        if "kinstream.toml" in one["data"]
    )
    return str(found)
