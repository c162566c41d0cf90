"""The chart as data: rendered with a file of values, and its documents by kind and name."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.go_tools import HELM, ROOT, tool
from tests.docs.pages import blocks

CHART: Final = ROOT / "deploy" / "helm" / "kinstream"
#: Files of values that the chart is rendered with, by what they stand for.
VALUES: Final = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))
}
PAGE: Final = ROOT / "docs" / "deploying.md"
RELEASE: Final = "blue"
NAMESPACE: Final = "ml"

Document = dict[str, Any]


def values_of_the_page() -> list[str]:
    """What the page shows of my-values.yaml: what a release begins with, then what may be added, in its order."""
    return [block.text for block in blocks(PAGE, "yaml") if "rules" not in yaml.safe_load(block.text)]


def commands_of_the_page(mark: str) -> list[str]:
    """The lines of the shell example below `<!-- test: MARK -->`, without comments."""
    (found,) = [block.text for block in blocks(PAGE, "sh") if block.before == f"<!-- test: {mark} -->"]
    return [line for line in found.splitlines() if not line.startswith("#")]


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
    return tuple(document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document)


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
