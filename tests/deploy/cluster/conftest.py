"""An API server for the session, a namespace for each test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.deploy.cluster import definitions, server
from tests.deploy.cluster.release import Release
from tests.deploy.cluster.server import ApiServer

ESTABLISHED_SECONDS = 60.0


def _needs(reason: str | None) -> None:
    """Leave the test out where something is missing; in CI nothing is left out."""
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server, without the kinds of other projects. Use namespaces of your own."""
    _needs(server.missing())
    with ApiServer(tmp_path_factory.mktemp("cluster") / "server") as found:
        yield found


@pytest.fixture(scope="session")
def operators(cluster: ApiServer) -> ApiServer:
    """The API server, with the kinds of KEDA, Strimzi and the Prometheus operator."""
    _needs(definitions.missing())
    for one in definitions.bring():
        cluster.create(one)
        name = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
        limit = time.monotonic() + ESTABLISHED_SECONDS
        while not any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in cluster.request("GET", name)["status"]["conditions"] or ()
        ):
            assert time.monotonic() < limit, name
            time.sleep(0.1)
    return cluster


@pytest.fixture
def release(cluster: ApiServer) -> Release:
    """A release that is not installed, in a new namespace that admits only restricted pods."""
    name = f"ml-{uuid4().hex[:8]}"
    modes = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": modes}})
    return Release(cluster, name)
