"""A release of the chart in a namespace: what Helm is asked, and what the API server then holds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.charts import CHART, RELEASE, VALUES
from tests.deploy.cluster.server import ApiServer, Document

#: What the server itself writes into an object.
_SERVERS: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


class Release:
    """One release, by the files of values that the chart has."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace

    def helm(self, *arguments: str) -> str:
        """Run Helm in the namespace; it must succeed, and have no warning from the server."""
        done = self.server.helm(*arguments, "--namespace", self.namespace)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stderr.lower(), done.stderr
        return done.stdout

    def typed(self, line: str, values: Path) -> list[str]:
        """The words of a line of the docs after `helm`, for this namespace and with this file of values."""
        program, *words = shlex.split(line)
        assert program == "helm", line
        own = {"deploy/helm/kinstream": str(CHART), "my-values.yaml": str(values), "ml": self.namespace}
        return [own.get(word, word) for word in words]

    def install(self, name: str, *more: str) -> str:
        return self.helm("install", RELEASE, str(CHART), "--values", str(VALUES[name]), *more)

    def upgrade(self, name: str, *more: str) -> str:
        return self.helm("upgrade", RELEASE, str(CHART), "--values", str(VALUES[name]), *more)

    def refusal(self, verb: str, name: str, *more: str) -> str:
        """What Helm says when it, or the API server, refuses."""
        place = ["--namespace", self.namespace, "--values", str(VALUES[name])]
        done = self.server.helm(verb, RELEASE, str(CHART), *place, *more)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def rendered(self, name: str, *more: str) -> list[Document]:
        """The documents, hooks included, as they would be sent to this server."""
        told = self.helm("template", RELEASE, str(CHART), "--values", str(VALUES[name]), "--validate", *more)
        return [one for one in yaml.safe_load_all(told) if one]

    def objects(self) -> dict[tuple[str, str], Document]:
        """What the namespace holds, without Helm's own records."""
        found = self.server.objects(self.namespace)
        return {key: one for key, one in found.items() if one.get("type") != "helm.sh/release.v1"}

    def contents(self) -> dict[tuple[str, str], Any]:
        """Labels, annotations and contents of all objects, less what the server writes for each one anew."""
        return {key: _content(one) for key, one in self.objects().items()}

    def one(self, resource: str, name: str) -> Document:
        """An object of the release, by its name without that of the release."""
        return self.objects()[resource, f"{RELEASE}-kinstream{name and '-'}{name}"]


def _content(one: Document) -> Document:
    kept = {key: value for key, value in one.items() if key != "status"}
    kept["metadata"] = {key: value for key, value in one["metadata"].items() if key not in _SERVERS}
    if one["kind"] == "Job":
        # Its selector holds the uid.
        pod = one["spec"]["template"]["spec"]
        kept = {"metadata": kept["metadata"]["name"], "spec": pod}
    if one["kind"] == "Service":
        # Addresses are given anew.
        kept["spec"] = {key: value for key, value in one["spec"].items() if not key.startswith("clusterIP")}
    if one["kind"] == "Deployment":
        # A controller's counter of roll-outs.
        kept["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return kept
