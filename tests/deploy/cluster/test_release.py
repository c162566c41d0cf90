"""A release is installed, changed, rolled back, tested and removed by Helm on an API server."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import (
    CHART,
    PAGE,
    RELEASE,
    VALUES,
    commands_of_the_page,
    of_kind,
    pods,
    values_of_the_page,
)
from tests.deploy.cluster.release import Release
from tests.deploy.cluster.server import ApiServer, RefusedError
from tests.deploy.go_tools import API_SERVER
from tests.deploy.test_chart import read_settings

#: The first test may have to build the API server and Helm.
pytestmark = pytest.mark.timeout(1800)
DEADLINE = 30.0


def test_the_server_is_of_the_version_that_the_docs_name(cluster: ApiServer) -> None:
    assert cluster.version == API_SERVER.version
    assert f"kube-apiserver {API_SERVER.version.removeprefix('v')}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", VALUES)
def test_everything_is_accepted_to_the_last_field(operators: ApiServer, release: Release, name: str) -> None:
    documents = release.rendered(name)
    assert {one["kind"] for one in documents} >= {"Deployment", "ConfigMap", "Service", "PodDisruptionBudget"}
    for one in documents:
        if one["kind"] != "Pod":
            operators.create(one, release.namespace, dry_run=True)


def test_an_unknown_field_is_refused(operators: ApiServer, release: Release) -> None:
    for name, kind in (("minimal", "Deployment"), ("secured", "ServiceMonitor"), ("strimzi", "KafkaTopic")):
        document = next(one for one in release.rendered(name) if one["kind"] == kind)
        document["spec"]["replica"] = 3
        with pytest.raises(RefusedError, match=r'unknown field "spec.replica"'):
            operators.create(document, release.namespace, dry_run=True)


@pytest.mark.parametrize("name", VALUES)
def test_an_uninstalled_release_leaves_state_and_topics_alone(
    operators: ApiServer, release: Release, name: str
) -> None:
    release.install(name)
    rendered = {(one["kind"], one["metadata"]["name"]) for one in release.rendered(name)}
    installed = release.objects()
    assert {(one["kind"], one["metadata"]["name"]) for one in installed.values()} == {
        key for key in rendered if key[0] != "Pod"
    }
    release.helm("uninstall", RELEASE)
    kept = {key for key, one in release.objects().items() if "deletionTimestamp" not in one["metadata"]}
    if name == "strimzi":
        topics = {(kind, topic) for kind, topic in installed if kind == "kafkatopics"}
        assert topics and kept == topics | {("persistentvolumeclaims", "blue-kinstream-checkpoints")}
    else:
        assert kept == set()
    assert release.helm("list", "--all", "--short") == ""
    # And a new release of that name takes over what was kept.
    release.install(name)
    assert release.objects().keys() == installed.keys()


def test_an_upgrade_changes_what_has_other_values_and_nothing_else(release: Release) -> None:
    release.install("minimal")
    before = release.contents()
    release.upgrade("minimal", "--set", "learners.opml.replicas=3")
    after = release.contents()
    assert {key for key in before | after if before.get(key) != after.get(key)} == {
        ("deployments", "blue-kinstream-learner-opml")
    }
    assert release.one("deployments", "learner-opml")["spec"]["replicas"] == 3


#: Each changes the pods, or a name of an object, or which objects there are.
CHANGES = {
    "minimal": (
        "workload.resources.limits.memory=3Gi",
        "workload.extraEnv[0].name=NO_PROXY,workload.extraEnv[0].value=kafka",
        "workload.secretFiles=kinstream-files",
        "settings.worker.shutdown_seconds=40",
        "image.pullPolicy=Always",
        "image.tag=0.2.0",
        "checkpoints.credentialsSecret=kinstream-s3",
        "settings.topics.partitions=12",
        "kafka.bootstrapServers=other.example.org:9092",
        "serviceAccount.name=workers",
    ),
    "secured": (
        "kafka.saslPasswordSecret.name=exchanged,serve.secretFiles=exchanged",
        "dashboards.enabled=false,gate.keySecret.name=exchanged",
        "networkPolicy.enabled=false,serviceMonitor.enabled=false",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_running_release_can_be_changed_and_rolled_back(
    operators: ApiServer, release: Release, name: str
) -> None:
    release.install(name)
    found = [release.contents()]
    for change in CHANGES[name]:
        release.upgrade(name, "--set", change)
        found.append(release.contents())
        assert found[-1] not in found[:-1], change
    # Helm keeps ten revisions.
    for revision in {"minimal": (3, 5), "secured": (1, 3)}[name]:
        release.helm("rollback", RELEASE, str(revision))
        assert release.contents() == found[revision - 1]


def test_agents_come_and_go_with_their_values(release: Release) -> None:
    release.install("minimal")
    more = "learners.euclidean.settings.kind=euclidean,learners.euclidean.settings.from={one-pass}"
    release.upgrade("minimal", "--set", more)
    added = {("deployments", "blue-kinstream-learner-euclidean")}
    added |= {("poddisruptionbudgets", name) for _, name in added}
    assert added <= release.objects().keys()
    assert "[learners.euclidean]" in release.one("configmaps", "")["data"]["kinstream.toml"]
    release.upgrade("minimal")
    assert not added & release.objects().keys()


def test_a_new_generation_is_a_job_until_the_next_upgrade(release: Release, tmp_path: Path) -> None:
    values = tmp_path / "my-values.yaml"
    values.write_text(values_of_the_page()[0])
    (install,) = commands_of_the_page("install")
    stop, wait, begin, logs, end = commands_of_the_page("generation")
    release.helm(*release.typed(install, values))
    release.helm(*release.typed(stop, values))
    deployment = release.one("deployments", "learner-opml")
    assert deployment["spec"]["replicas"] == 0
    # No kubelet runs, so there are neither pods to wait for nor logs: both lines have to name what there would be.
    selector = dict(label.split("=") for label in shlex.split(wait)[-1].split(","))
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    kind, name = shlex.split(logs)[-1].split("/")
    job = (f"{kind}s", name)
    values.write_text(values.read_text().replace("gamma: 0.001", "gamma: 0.002"))
    begun = release.typed(begin, values)
    release.helm(*begun)
    assert release.one("deployments", "learner-opml")["spec"]["replicas"] == 0
    # The same again changes nothing, and does not begin another one.
    uid = release.objects()[job]["metadata"]["uid"]
    release.helm(*begun)
    assert release.objects()[job]["metadata"]["uid"] == uid
    for change in ("newGeneration.fromStart=true", "image.tag=0.2.0", "settings.worker.shutdown_seconds=40"):
        refused = release.server.helm(*begun, "--set", change)
        assert refused.returncode != 0
        assert f"{name} of an earlier upgrade has other settings" in refused.stderr, change
        assert release.objects()[job]["metadata"]["uid"] == uid
    release.helm(*release.typed(end, values))
    assert job not in release.objects()
    assert release.one("deployments", "learner-opml")["spec"]["replicas"] == 2
    assert "gamma = 0.002" in release.one("configmaps", "")["data"]["kinstream.toml"]


#: The Deployments that each block of the page adds.
ADDED = (
    {"builder-one-pass", "learner-opml", "learner-euclidean", "metrics"},
    {"serve"},
    {"builder-clicks", "learner-queries"},
    {"vectors", "vectors-watch", "sink-main"},
    set[str](),
    set[str](),
)


def test_each_block_of_the_page_adds_what_is_said_above_it(
    operators: ApiServer, release: Release, tmp_path: Path
) -> None:
    given: list[str] = []
    before: set[str] = set()
    for text, added in zip(values_of_the_page(), ADDED, strict=True):
        file = tmp_path / f"{len(given)}.yaml"
        file.write_text(text)
        given += ["--values", str(file)]
        told = release.helm("template", RELEASE, str(CHART), "--validate", *given)
        documents = tuple(one for one in yaml.safe_load_all(told) if one)
        found = {name.removeprefix("blue-kinstream-") for name in of_kind("Deployment", documents)}
        assert found - before == added
        before = found
        settings = read_settings(documents, tmp_path)
    for one in documents:
        if one["kind"] != "Pod":
            operators.create(one, release.namespace, dry_run=True)
    assert settings.serve.clients_file.startswith("/etc/kinstream-secrets/")
    (files,) = (v for v in pods(documents)["blue-kinstream-serve"]["volumes"] if v["name"] == "secret-files")
    assert "kinstream-clients" in str(files)
    assert of_kind("ScaledObject", documents).keys() == {"blue-kinstream-learner-opml"}


def test_an_existing_claim_is_looked_up(cluster: ApiServer, release: Release) -> None:
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    for name, mode in (("of-one-node", "ReadWriteOnce"), ("shared", "ReadWriteMany")):
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        cluster.create(claim | {"spec": spec | {"accessModes": [mode]}}, release.namespace)
    values = "checkpoints.url=,checkpoints.volume.existingClaim="
    told = release.refusal("install", "minimal", "--set", f"{values}of-one-node")
    assert "access mode ReadWriteOnce binds the volume to one node or pod" in told
    release.install("minimal", "--set", f"{values}shared")


# ---- helm test ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "status"), [("Succeeded", 0), ("Failed", 1)])
def test_helm_waits_for_the_pod_that_checks(
    cluster: ApiServer, release: Release, phase: str, status: int
) -> None:
    release.install("secured", "--set", "serviceMonitor.enabled=false,prometheusRule.enabled=false")
    name = "blue-kinstream-check"
    command, environment = cluster.helm_command("test", RELEASE, "--namespace", release.namespace)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as testing:
        try:
            limit = time.monotonic() + DEADLINE
            while ("pods", name) not in release.objects():
                assert testing.poll() is None and time.monotonic() < limit, "no pod is created"
                time.sleep(0.1)
            pod = release.objects()["pods", name]
            # The test does what a kubelet would do: no kubelet runs the pod.
            with pytest.raises(subprocess.TimeoutExpired):
                testing.wait(3.0)
            path = f"/api/v1/namespaces/{release.namespace}/pods/{name}/status"
            cluster.request("PATCH", path, {"status": {"phase": phase}})
            told, wrong = testing.communicate(timeout=DEADLINE)
        finally:
            testing.kill()
    assert testing.returncode == status, told + wrong
    assert f"Phase:          {phase}" in told
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["check"]
    (files,) = (one["projected"] for one in pod["spec"]["volumes"] if one["name"] == "secret-files")
    mounted = {source["secret"]["name"] for source in files["sources"]}
    values = yaml.safe_load(VALUES["secured"].read_text())
    assert mounted == {values["serve"]["secretFiles"], values["sinks"]["main"]["secretFiles"]}


def test_no_single_login_can_check_where_every_agent_has_its_own(
    operators: ApiServer, release: Release
) -> None:
    assert not [one for one in release.rendered("strimzi") if one["kind"] == "Pod"]
    assert [one for one in release.rendered("minimal") if one["kind"] == "Pod"]
