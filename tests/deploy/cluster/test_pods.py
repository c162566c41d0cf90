"""Every pod of the chart is admitted where Kubernetes enforces its strictest profile, `restricted`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy.charts import VALUES
from tests.deploy.cluster.release import Release
from tests.deploy.cluster.server import ApiServer, Document, RefusedError

pytestmark = pytest.mark.timeout(1800)


def pods(documents: list[Document]) -> list[Document]:
    """The pods that the controllers of Deployments and Jobs would create, and those of `helm test`."""
    found = [one for one in documents if one["kind"] == "Pod"]
    for one in documents:
        if one["kind"] in ("Deployment", "Job"):
            template = one["spec"]["template"]
            metadata = template["metadata"] | {"generateName": f"{one['metadata']['name']}-"}
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return found


def admit(server: ApiServer, pod: Document, namespace: str) -> Document:
    """Ask the server to create the pod, and not to keep it."""
    return server.create(pod, namespace, dry_run=True)


@pytest.mark.parametrize("name", VALUES)
def test_every_pod_is_admitted(operators: ApiServer, release: Release, name: str) -> None:
    release.install(name)
    documents = release.rendered(name)
    found = pods(documents)
    assert len(found) >= sum(one["kind"] in ("Deployment", "Job") for one in documents) > 0
    for pod in found:
        admitted = admit(operators, pod, release.namespace)
        assert admitted["spec"]["serviceAccountName"] == "blue-kinstream"
        # The admission of service accounts would mount a token otherwise.
        assert not [one for one in admitted["spec"]["volumes"] if one["name"].startswith("kube-api-access")]


def privileged(pod: Document) -> None:
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}


def as_root(pod: Document) -> None:
    pod["spec"]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}


def with_capabilities(pod: Document) -> None:
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]


def without_seccomp(pod: Document) -> None:
    del pod["spec"]["securityContext"]["seccompProfile"]


def escalating(pod: Document) -> None:
    del pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]


def on_the_host(pod: Document) -> None:
    pod["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}})


#: What gives a pod more rights, and the server's word for it.
CHANGES: dict[Callable[[Document], Any], str] = {
    privileged: "privileged",
    as_root: "runAsNonRoot != true",
    with_capabilities: "unrestricted capabilities",
    without_seccomp: "seccompProfile",
    escalating: "allowPrivilegeEscalation != false",
    on_the_host: "hostPath",
}


def test_a_pod_with_more_rights_is_refused(cluster: ApiServer, release: Release) -> None:
    release.install("minimal")
    pod = pods(release.rendered("minimal"))[0]
    admit(cluster, pod, release.namespace)
    for change, reason in CHANGES.items():
        other = copy.deepcopy(pod)
        change(other)
        with pytest.raises(RefusedError, match=f"violates PodSecurity.*{reason}") as refused:
            admit(cluster, other, release.namespace)
        assert refused.value.status == 403
