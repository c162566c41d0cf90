"""compose.yaml: the loader of `docker compose` takes it, what it names is there, and its Kafka and agents work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kinstream.cli.shared.agents import agent_spec
from kinstream.monitoring.roster import UNLEARNED
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.topic_check import differences
from kinstream.streams.settings import KafkaSettings, Settings, load
from tests.deploy.composed_agents import Agents
from tests.deploy.composed_kafka import ComposedKafka
from tests.deploy.go_tools import COMPOSE, ROOT, tool
from tests.deploy.volumes import STORE, Mount, Volume

#: The first test may have to build the loader.
pytestmark = pytest.mark.timeout(900)
DEPLOY: Final = ROOT / "deploy"
FILE: Final = DEPLOY / "compose.yaml"
SETTINGS: Final = DEPLOY / "compose" / "kinstream.toml"
#: Services that are Kinstream's own.
IMAGE: Final = "kinstream:0.1.0"


@cache
def loaded() -> dict[str, Any]:
    """The file as `docker compose` sees it: anchors, defaults and paths resolved, checked against the specification."""
    command = [str(tool(COMPOSE)), "--format", "json", FILE.name]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=DEPLOY, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def services() -> dict[str, dict[str, Any]]:
    """Every service by name."""
    found: dict[str, dict[str, Any]] = loaded()["services"]
    return found


def agents() -> dict[str, dict[str, Any]]:
    """The services that run a worker."""
    return {name: one for name, one in services().items() if (one.get("command") or [""])[0] == "worker"}


def everything() -> dict[str, dict[str, Any]]:
    """All that serve a page: the workers and the service."""
    return {**agents(), "serve": services()["serve"]}


def settings() -> Settings:
    return load(SETTINGS)


def test_what_is_not_in_the_specification_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("stop_grace_period", "stop_grace_time"))
    done = subprocess.run([tool(COMPOSE), wrong], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "stop_grace_time" in done.stderr


def test_docker_takes_it_where_there_is_one() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    ):
        # Not left out: the loader that the client is made of has read the file.
        assert services()
        return
    command = [docker, "compose", "--file", str(FILE), "--profile", "commands", "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_that_is_mounted_is_there() -> None:
    named = loaded()["volumes"].keys()
    for name, service in services().items():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), (name, volume)
                assert volume["read_only"], (name, volume)
            else:
                assert volume["source"] in named, (name, volume)


def test_every_image_is_of_a_version() -> None:
    for service in services().values():
        repository, _, tag = service["image"].rpartition(":")
        assert repository and tag not in ("", "latest")


def test_nothing_listens_beyond_this_machine() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert len(published) == 5
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_every_agent_of_the_settings_is_a_service() -> None:
    wanted = [["worker", "builder", name, "--create"] for name in settings().builders]
    wanted += [["worker", "learner", name, "--create"] for name in settings().learners]
    wanted += [["worker", "metrics", "--create"]]
    assert sorted(one["command"] for one in agents().values()) == sorted(wanted)


def test_the_settings_make_every_agent() -> None:
    for service in agents().values():
        _, role, *rest = (word for word in service["command"] if word != "--create")
        assert agent_spec(settings(), role, rest[0] if rest else None).shaping


def test_one_learner_is_the_baseline_of_the_others() -> None:
    kinds = {learner.kind for learner in settings().learners.values()}
    assert kinds & UNLEARNED and kinds - UNLEARNED
    assert {learner.follows for learner in settings().learners.values()} == {("one-pass",)}


def test_agents_wait_for_the_topics_and_those_for_the_broker() -> None:
    for service in everything().values():
        assert service["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    assert services()["topics"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    assert services()["topics"]["command"] == ["topics", "create"]


def test_kinstream_runs_with_no_rights_that_it_does_not_need() -> None:
    own = {name: one for name, one in services().items() if one["image"] == IMAGE}
    assert own.keys() == {*everything(), "topics", "gate-models", "kinstream"}
    for service in own.values():
        assert service["read_only"] is True
        assert service["user"] == "10001:10001"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp:mode=1777"]


def test_an_agent_is_left_more_time_than_the_worker_takes() -> None:
    for service in everything().values():
        assert (
            float(service["stop_grace_period"].removesuffix("s")) >= settings().worker.shutdown_seconds + 10
        )


def test_agents_share_the_checkpoints() -> None:
    for service in agents().values():
        assert store_mounts(service) == [Mount("", settings().checkpoints.url, read_only=False)]


def store_mounts(service: dict[str, Any]) -> list[Mount]:
    """The mounts of the checkpoint volume in a service."""
    return [
        Mount(one["volume"].get("subpath", ""), one["target"], one.get("read_only", False))
        for one in service["volumes"]
        if one["source"] == "checkpoints"
    ]


def test_the_query_agent_writes_copies_of_models_and_nothing_else(tmp_path: Path) -> None:
    serve, first = services()["serve"], services()["gate-models"]
    assert serve["depends_on"]["gate-models"]["condition"] == "service_completed_successfully"
    assert settings().checkpoints.url == STORE and "command" not in first
    volume = Volume(tmp_path)
    for _ in range(2):
        # It runs at every `up`.
        assert volume.run(store_mounts(first), first["entrypoint"][1:]) == ""
    refused = dict.fromkeys(("learner-opml", "gate", "new"), "Read-only file system")
    assert volume.faults(store_mounts(serve)) == refused | {"copies": None}


def test_the_query_agent_answers_this_machine() -> None:
    serve = services()["serve"]
    assert serve["command"] == ["serve"]
    (port,) = serve["ports"]
    assert (port["host_ip"], int(port["published"]), port["target"]) == (
        "127.0.0.1",
        settings().serve.http_port,
        settings().serve.http_port,
    )
    assert settings().serve.http_host == "0.0.0.0"
    assert {one.learner for one in settings().serve.spaces.values()} <= settings().learners.keys()


def test_prometheus_asks_every_agent_where_it_listens() -> None:
    worker = settings().worker
    assert worker.http_host == "0.0.0.0"
    (targets,) = yaml.safe_load((DEPLOY / "compose" / "targets" / "workers.yml").read_text())
    ports = dict.fromkeys(agents(), worker.http_port) | {"serve": settings().serve.http_port}
    assert sorted(targets["targets"]) == sorted(f"{name}:{port}" for name, port in ports.items())
    for name, service in everything().items():
        assert f"http://127.0.0.1:{ports[name]}/readyz" in service["healthcheck"]["test"][-1]


def mounts(name: str) -> dict[str, str]:
    """Where what lies in a container: place in it -> file or folder of deploy/."""
    folder = str(DEPLOY) + "/"
    found = services()[name]["volumes"]
    return {one["target"]: one["source"].removeprefix(folder) for one in found if one["type"] == "bind"}


def test_prometheus_finds_its_rules_its_targets_and_alertmanager() -> None:
    told = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    found = mounts("prometheus")
    assert found["/etc/prometheus/prometheus.yml"] == "prometheus/prometheus.yml"
    for rules in told["rule_files"]:
        there = Path(os.path.normpath(f"/etc/prometheus/{rules}"))
        assert (DEPLOY / found[str(there.parent)] / there.name).samefile(DEPLOY / "prometheus" / rules)
    (job,) = told["scrape_configs"]
    (discovery,) = job["file_sd_configs"]
    assert discovery["files"] == ["targets/*.yml"]
    assert found["/etc/prometheus/targets"] == "compose/targets"
    (manager,) = told["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["localhost:9093"]}]
    assert services()["alertmanager"]["network_mode"] == "service:prometheus"
    ports = {(port["published"], port["target"]) for port in services()["prometheus"]["ports"]}
    assert ports == {("9090", 9090), ("9093", 9093)}
    assert mounts("alertmanager") == {"/etc/alertmanager/alertmanager.yml": "alertmanager/alertmanager.yml"}


def test_grafana_finds_its_data_source_and_dashboards() -> None:
    grafana = services()["grafana"]
    source = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    )
    url = source["datasources"][0]["url"]
    assert url.startswith("${") and url.strip("${}") in grafana["environment"]
    assert grafana["environment"][url.strip("${}")] == "http://prometheus:9090"
    provider = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "dashboards" / "kinstream.yml").read_text()
    )
    found = mounts("grafana")
    assert found["/etc/grafana/provisioning"] == "grafana/provisioning"
    assert found[provider["providers"][0]["options"]["path"]] == "helm/kinstream/files/dashboards"


def test_the_settings_name_nothing_that_the_environment_says() -> None:
    assert "kafka" not in tomllib.loads(SETTINGS.read_text())


# ---- its broker and its agents, without containers -----------------------------------------------------------------


@pytest.fixture
def kafka_of_compose(tmp_path: Path) -> Iterator[ComposedKafka]:
    with ComposedKafka(tmp_path / "kafka", services()["kafka"]["environment"]) as broker:
        yield broker


@pytest.mark.kafka
def test_the_broker_starts_and_the_topics_are_created(
    kafka_of_compose: ComposedKafka, tmp_path: Path
) -> None:
    system = Agents(SETTINGS, kafka_of_compose.bootstrap, tmp_path)
    done = system.run(*services()["topics"]["command"])
    assert done.returncode == 0, done.stderr
    cluster = Cluster(KafkaSettings(bootstrap_servers=kafka_of_compose.bootstrap))
    assert differences(cluster, settings()) == []
    # The catalogue is all there is: asking for another topic does not make one.
    assert "kinstream.elsewhere" not in cluster.view(["kinstream.elsewhere"]).topics
    cluster.close()


@pytest.mark.kafka
@pytest.mark.long
def test_the_agents_learn_and_stop_in_time(kafka_of_compose: ComposedKafka, tmp_path: Path) -> None:
    with Agents(SETTINGS, kafka_of_compose.bootstrap, tmp_path) as system:
        assert system.run(*services()["topics"]["command"]).returncode == 0
        for name, service in everything().items():
            system.start(name, service["command"])
        system.wait_until_ready()
        done = system.run("produce", "labelled", "sklearn:digits", "--space", "digits", "--shuffle-seed", "1")
        assert done.returncode == 0, done.stderr
        learned = system.wait_for_learners("metrics", settings().learners.keys())
        assert len(set(learned.values())) == 1, learned
        system.wait_for_models("serve", settings().serve.spaces.keys())
        assert system.stop(settings().worker.shutdown_seconds) == dict.fromkeys(everything(), 0)
