"""The Helm chart: what it renders is valid and is what the code needs; what cannot work it refuses with the reason."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from deploy import strimzi
from kinstream.cli.main import cli
from kinstream.cli.shared.agents import agent_spec
from kinstream.streams.kafka.rights.acls import as_json, role
from kinstream.streams.processes import supervisor
from kinstream.streams.settings import KafkaSettings, Settings, load
from kinstream.streams.topics import CATALOGUE
from tests.deploy.charts import (
    CHART,
    VALUES,
    Document,
    container,
    environment,
    helm,
    of_kind,
    pods,
    refusal,
    rendered,
    settings_file,
    template,
)

#: The first test may have to build Helm.
pytestmark = pytest.mark.timeout(1200)
#: Versions of Kubernetes: the oldest that the chart takes, and the newest that is known.
KUBERNETES = ("1.29.0", kubernetes_validate.latest_version())
#: An API server with the definitions of these kinds checks them: tests/deploy/cluster.
DEFINED_ELSEWHERE = ("kafka.strimzi.io/", "monitoring.coreos.com/")
#: Names are labels of DNS as well.
LONGEST_NAME = 63


@pytest.fixture(params=VALUES)
def name(request: pytest.FixtureRequest) -> str:
    """Each of the files of values."""
    return str(request.param)


@pytest.fixture
def documents(name: str) -> tuple[Document, ...]:
    return rendered(name)


def read_settings(documents: tuple[Document, ...], folder: Path, secrets: str = "") -> Settings:
    """The settings as a worker reads them; the brokers are in its environment.

    `secrets` stands for the folder of the pod's secret files.
    """
    file = folder / "kinstream.toml"
    # The key of the gate is a file of the pod.
    (folder / "key").write_text("k" * 48, encoding="utf-8")
    text = settings_file(documents).replace("/etc/kinstream-gate/key", str(folder / "key"))
    file.write_text(
        text.replace("/etc/kinstream-secrets", secrets or "/etc/kinstream-secrets"), encoding="utf-8"
    )
    return load(file)


# ---- valid ------------------------------------------------------------------------------------------------------


def test_there_are_three_files_of_values() -> None:
    assert set(VALUES) == {"minimal", "secured", "strimzi"}


def test_helm_finds_nothing_to_complain_about(name: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--kube-version", "1.34.0", "--values", str(VALUES[name]))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_document_is_valid(documents: tuple[Document, ...], version: str) -> None:
    for document in documents:
        if not document["apiVersion"].startswith(DEFINED_ELSEWHERE):
            kubernetes_validate.validate(document, version, strict=True)


def test_a_document_that_is_not_valid_is_found() -> None:
    deployment = next(iter(of_kind("Deployment", rendered("minimal")).values()))
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_no_document_comes_twice(documents: tuple[Document, ...]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(names) == len(set(names))


def test_long_names_stay_names_and_stay_apart(tmp_path: Path) -> None:
    long, longer = "a" * 62, "a" * 63
    values = tmp_path / "values.yaml"
    learner = {"settings": {"kind": "opml", "from": ["one-pass"]}}
    values.write_text(
        VALUES["minimal"].read_text() + yaml.safe_dump({"learners": {long: learner, longer: learner}}),
        encoding="utf-8",
    )
    done = template(values)
    found = tuple(one for one in yaml.safe_load_all(done.stdout) if one)
    deployments = of_kind("Deployment", found)
    assert len(deployments) == 4
    for document in found:
        assert len(document["metadata"]["name"]) <= LONGEST_NAME
        kubernetes_validate.validate(document, KUBERNETES[-1], strict=True)
    selectors = [json.dumps(one["spec"]["selector"], sort_keys=True) for one in deployments.values()]
    assert len(set(selectors)) == len(deployments)
    labels = [
        value
        for one in deployments.values()
        for value in one["spec"]["template"]["metadata"]["labels"].values()
    ]
    assert max(map(len, labels)) <= LONGEST_NAME


# ---- what runs --------------------------------------------------------------------------------------------------


def test_every_agent_of_the_settings_is_a_deployment(documents: tuple[Document, ...], tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("postgresql://localhost/docs")
    settings = read_settings(documents, tmp_path, str(tmp_path))
    wanted = [["worker", "source", name, "--create"] for name in settings.sources]
    wanted += [["worker", "builder", name, "--create"] for name in settings.builders]
    wanted += [["worker", "learner", name, "--create"] for name in settings.learners]
    wanted += [["worker", "metrics", "--create"]]
    wanted += [["worker", "gate", "--create"]] if settings.gate else []
    wanted += [["worker", "vectors", "--create"]] if settings.vectors else []
    wanted += [["worker", "sink", name, "--create"] for name in settings.sinks]
    workers = list(wanted)
    wanted += [["vectors", "watch"]] if settings.vectors else []
    wanted += [["serve"]] if settings.serve.spaces else []
    found = [container(pods(documents)[name])["args"] for name in of_kind("Deployment", documents)]
    assert sorted(found) == sorted(wanted)
    for _, agent, *rest in workers:
        assert agent_spec(settings, agent, rest[0] if len(rest) == 2 else None).shaping


def test_the_settings_are_those_of_the_values(
    documents: tuple[Document, ...], name: str, tmp_path: Path
) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    given = yaml.safe_load(VALUES[name].read_text())
    found = read_settings(documents, tmp_path)
    for section, defaults in values["settings"].items():
        wanted = defaults | given.get("settings", {}).get(section, {})
        read = getattr(found, section).model_dump()
        assert {key: read[key] for key in wanted} == wanted
    for section in ("builders", "learners"):
        for agent, entry in given[section].items():
            told = getattr(found, section)[agent].model_dump(by_alias=True, exclude_unset=True)
            assert json.loads(json.dumps(told)) == entry["settings"]
    asked = given.get("serve", {})
    told = found.serve.model_dump(mode="json", exclude_unset=True)
    assert {key: one for key, one in told.items() if key != "spaces"} == (
        values["serve"]["settings"] | asked.get("settings", {}) if asked else {}
    )
    assert told.get("spaces", {}) == asked.get("spaces", {})
    gates = given.get("gate", {}).get("spaces", {})
    assert {space: one.model_dump(exclude_unset=True) for space, one in found.gate.items()} == gates
    drawn = {space: one.model_dump(exclude_unset=True) for space, one in found.randomise.items()}
    assert drawn == given.get("randomise", {})
    moved = given.get("vectors", {}).get("spaces", {})
    assert {space: one.model_dump(exclude_unset=True) for space, one in found.vectors.items()} == moved
    for sink, entry in given.get("sinks", {}).items():
        assert found.sinks[sink].model_dump(exclude_unset=True) == entry["settings"]
    for source, entry in given.get("sources", {}).items():
        assert found.sources[source].model_dump(exclude_unset=True) == entry["settings"]
    store = values["checkpoints"] | given["checkpoints"]
    assert (found.checkpoints.keep, found.checkpoints.interval_seconds) == (
        store["keep"],
        store["interval_seconds"],
    )
    assert found.checkpoints.url == (store["url"] or "/var/lib/kinstream")


def test_values_come_through_as_they_were(tmp_path: Path) -> None:
    odd = {
        "kind": "one-pass",
        "seed": 1_500_000_000,
        "small": 1e-07,
        "text": '"quoted" \\ <é>\u2028 # = [x]\n\tend',
        "list": [1, 2.5, True, "a", [], ["b"]],
        "table": {"with.dot": {"empty": {}}, "below": -0.25, "no": False},
    }
    values = tmp_path / "values.yaml"
    given = {"builders": {"one-pass": {"settings": odd}}, "learners": None}
    values.write_text(VALUES["minimal"].read_text() + yaml.safe_dump(given), encoding="utf-8")
    done = template(values)
    assert done.returncode == 0, done.stderr
    text = settings_file(tuple(one for one in yaml.safe_load_all(done.stdout) if one))
    found = tomllib.loads(text)["builders"]["one-pass"]
    assert found == odd and isinstance(found["seed"], int)


def test_a_start_after_other_settings_is_a_new_roll_out() -> None:
    def checksums(*more: str) -> set[str]:
        found = of_kind("Deployment", rendered("minimal", *more)).values()
        return {one["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for one in found}

    assert len(checksums()) == 1
    assert checksums("--set", "metrics.replicas=3") == checksums()
    assert checksums("--set", "learners.opml.settings.gamma=0.01") != checksums()


def test_a_release_may_begin_without_builders_and_learners() -> None:
    found = of_kind("Deployment", rendered("minimal", "--set", "builders=null,learners=null"))
    assert found.keys() == {"blue-kinstream-metrics"}


@pytest.mark.parametrize("name", ["secured", "strimzi"])
def test_clients_find_the_service(name: str, tmp_path: Path) -> None:
    documents = rendered(name)
    agent = "blue-kinstream-serve"
    found_service = of_kind("Service", documents)[agent]["spec"]
    (port,) = found_service["ports"]
    assert port["port"] == read_settings(documents, tmp_path).serve.http_port == 8088
    deployments = of_kind("Deployment", documents)
    found = [
        name
        for name, one in deployments.items()
        if found_service["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert found == [agent]
    assert container(pods(documents)[found[0]])["ports"][0]["name"] == port["targetPort"]
    # Headless would hand out pods that are not ready to who balances by itself.
    assert "publishNotReadyAddresses" not in found_service and "clusterIP" not in found_service


def test_no_service_runs_where_no_space_is_named(tmp_path: Path) -> None:
    documents = rendered("minimal")
    names = {one["metadata"]["name"] for one in documents}
    assert not names & {f"blue-kinstream-{agent}" for agent in ("serve", "gate")}
    settings = read_settings(documents, tmp_path)
    assert not settings.serve.spaces and not settings.gate


def test_an_entry_stands_over_the_workload() -> None:
    found = of_kind("Deployment", rendered("secured"))
    replicas = {name.removeprefix("blue-kinstream-"): one["spec"]["replicas"] for name, one in found.items()}
    assert replicas == {
        "source-web": 1,
        "builder-one-pass": 1,
        "builder-clicks": 3,
        "learner-opml": 2,
        "learner-per-modality": 1,
        "learner-euclidean": 1,
        "learner-queries": 1,
        "metrics": 2,
        "serve": 2,
        "gate": 1,
        "vectors": 1,
        "vectors-watch": 1,
        "sink-main": 1,
    }
    opml = container(pods(rendered("secured"))["blue-kinstream-learner-opml"])
    assert opml["resources"]["limits"] == {"memory": "4Gi"}
    assert opml["resources"]["requests"] == {"memory": "4Gi", "cpu": "500m"}


def test_workers_that_refuse_their_settings_leave_the_old_ones_at_work(
    documents: tuple[Document, ...],
) -> None:
    for one in of_kind("Deployment", documents).values():
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        assert one["spec"]["strategy"] == strategy


def test_the_strategy_may_be_another() -> None:
    found = rendered(
        "minimal", "--set", "workload.strategy.type=Recreate,workload.strategy.rollingUpdate=null"
    )
    assert {one["spec"]["strategy"]["type"] for one in of_kind("Deployment", found).values()} == {"Recreate"}
    for one in of_kind("Deployment", found).values():
        kubernetes_validate.validate(one, KUBERNETES[-1], strict=True)


def test_a_pod_may_go_and_a_node_be_drained(documents: tuple[Document, ...]) -> None:
    budgets = of_kind("PodDisruptionBudget", documents)
    deployments = of_kind("Deployment", documents)
    assert budgets.keys() == deployments.keys()
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == deployments[name]["spec"]["selector"]


def test_a_selector_finds_the_pods_of_one_agent_alone(documents: tuple[Document, ...]) -> None:
    owners = of_kind("Deployment", documents) | of_kind("Job", documents)
    labels = {name: one["spec"]["template"]["metadata"]["labels"].items() for name, one in owners.items()}
    for name, deployment in of_kind("Deployment", documents).items():
        wanted = deployment["spec"]["selector"]["matchLabels"].items()
        assert [other for other, found in labels.items() if wanted <= found] == [name]


# ---- life and death ---------------------------------------------------------------------------------------------


def seconds_until_killed(monkeypatch: pytest.MonkeyPatch, shutdown_seconds: float) -> float:
    """How long a worker tells `kinstream worker` to wait for its end before it kills it."""
    told: list[float] = []

    def tell(stop_seconds: float, log_format: str) -> None:
        told.append(stop_seconds)
        raise SystemExit(0)

    monkeypatch.setattr(supervisor, "tell_supervisor", tell)
    arguments = [
        "--set",
        f"worker.shutdown_seconds={shutdown_seconds}",
        "worker",
        "metrics",
        "--unsupervised",
    ]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    return told[0]


def test_a_pod_is_left_more_time_than_the_worker_takes(
    documents: tuple[Document, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = read_settings(documents, tmp_path).worker.shutdown_seconds
    killed = seconds_until_killed(monkeypatch, limit)
    assert killed > limit
    for pod in pods(documents).values():
        assert pod["terminationGracePeriodSeconds"] >= killed + 5


def test_probes_ask_the_worker_where_it_listens(documents: tuple[Document, ...], tmp_path: Path) -> None:
    settings = read_settings(documents, tmp_path)
    worker = settings.worker
    for name in of_kind("Deployment", documents):
        found = container(pods(documents)[name])
        if found["args"] == ["vectors", "watch"]:
            # It keeps nothing and has no page: where it ends, it is started again.
            assert not {"ports", "startupProbe", "livenessProbe", "readinessProbe"} & found.keys()
            continue
        where = settings.serve if found["args"] == ["serve"] else worker
        assert where.http_host == "0.0.0.0"
        assert found["ports"] == [{"name": "metrics", "containerPort": where.http_port}]
        asked = {kind: found[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert asked == {
            "startupProbe": {"path": "/healthz", "port": "metrics"},
            "livenessProbe": {"path": "/healthz", "port": "metrics"},
            "readinessProbe": {"path": "/readyz", "port": "metrics"},
        }
        start = found["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] > worker.startup_seconds
        alive = found["livenessProbe"]
        # The pauses of the supervisor and the watchdog of the worker come first.
        patience = alive["periodSeconds"] * alive["failureThreshold"]
        assert patience > supervisor.LONGEST_PAUSE + worker.stall_seconds


def test_a_first_start_may_be_left_out() -> None:
    found = rendered("minimal", "--set", "create=false")
    for name in of_kind("Deployment", found):
        assert "--create" not in container(pods(found)[name])["args"]


def test_a_new_generation_is_begun_once_and_by_nobody_else() -> None:
    values = [
        "--set",
        "learners.opml.replicas=0,newGeneration.agents={learner-opml},newGeneration.fromStart=true",
    ]
    found = rendered("minimal", *values)
    (job,) = (one for name, one in of_kind("Job", found).items() if "topics" not in name)
    pod = job["spec"]["template"]["spec"]
    assert container(pod)["args"] == ["worker", "learner", "opml", "--new-generation", "--from-start"]
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert of_kind("Deployment", found)["blue-kinstream-learner-opml"]["spec"]["replicas"] == 0
    for document in found:
        kubernetes_validate.validate(document, KUBERNETES[-1], strict=True)


def test_a_new_generation_beside_workers_of_the_old_one_is_refused() -> None:
    told = refusal("--set", "newGeneration.agents={learner-opml}")
    assert "learner-opml has 1 replicas" in told and "set replicas to 0" in told
    assert "there is no learner-x; there are: builder-one-pass" in refusal(
        "--set", "newGeneration.agents={learner-x}"
    )


def test_a_name_that_begins_with_a_digit_is_refused() -> None:
    words = "names of Services begin with a letter; set fullnameOverride"
    assert words in refusal("--set", "fullnameOverride=9lives")
    asked = ["template", "1blue", str(CHART), "--kube-version", "1.34.0", "--values", str(VALUES["minimal"])]
    assert words in helm(*asked).stderr
    found = helm(*asked, "--set", "fullnameOverride=blue")
    assert found.returncode == 0, found.stderr


# ---- what a pod may -----------------------------------------------------------------------------------------------


def test_a_pod_has_no_rights_that_it_does_not_need(documents: tuple[Document, ...]) -> None:
    for pod in pods(documents).values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert {"runAsNonRoot": True, "runAsUser": 10001}.items() <= pod["securityContext"].items()
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        (tmp,) = (volume for volume in pod["volumes"] if volume["name"] == "tmp")
        assert "emptyDir" in tmp
    for account in of_kind("ServiceAccount", documents).values():
        assert account["automountServiceAccountToken"] is False


def test_secrets_are_files_and_the_settings_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = rendered("secured")
    for pod in pods(documents).values():
        told = environment(pod)
        assert told["KAFKA_SASL_PASSWORD_FILE"] == "/etc/kafka-secrets/sasl-password"
        (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "kafka-secrets")
        (mount,) = (one for one in container(pod)["volumeMounts"] if one["name"] == "kafka-secrets")
        assert mount["readOnly"] is True
        files = {
            f"{mount['mountPath']}/{item['path']}": (source["secret"]["name"], item["key"])
            for source in secrets["sources"]
            for item in source["secret"]["items"]
        }
        assert files == {
            "/etc/kafka-secrets/sasl-password": ("kinstream-kafka", "password"),
            "/etc/kafka-secrets/ca.crt": ("kafka-ca", "ca.crt"),
            "/etc/kafka-secrets/client.crt": ("kinstream-client", "tls.crt"),
            "/etc/kafka-secrets/client.key": ("kinstream-client", "tls.key"),
            "/etc/kafka-secrets/key-password": ("kinstream-client", "key-password"),
        }
        assert {value for name, value in told.items() if name.endswith("_FILE")} == files.keys()
    (tmp_path / "secret").write_text("hushhush\n")
    for name, value in told.items():
        monkeypatch.setenv(name, str(tmp_path / "secret") if "PASSWORD" in name else value)
    kafka = KafkaSettings()
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert kafka.sasl_password.get_secret_value() == kafka.ssl_key_password.get_secret_value() == "hushhush"


def test_a_login_to_amazon_msk_names_its_region() -> None:
    values = "kafka.securityProtocol=SASL_SSL,kafka.saslMechanism=AWS_MSK_IAM"
    for given, wanted in ((values, None), (f"{values},kafka.awsRegion=eu-west-1", "eu-west-1")):
        for pod in pods(rendered("minimal", "--set", given)).values():
            told = {one["name"]: one.get("value") for one in container(pod)["env"]}
            assert told["KAFKA_SASL_MECHANISM"] == "AWS_MSK_IAM"
            assert told.get("AWS_REGION") == wanted


def test_the_key_of_the_gate_that_retires_is_an_entry_of_the_same_secret() -> None:
    documents = rendered("secured", "--set", "gate.keySecret.retiringKey=old")
    above = settings_file(documents).split("[")[0]
    assert 'gate_key_retiring_file = "/etc/kinstream-gate/retiring"' in above
    for pod in pods(documents).values():
        secrets = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
        entries = {one["path"]: one["key"] for one in secrets["gate-key"]["items"]}
        assert entries == {"key": "key", "retiring": "old"}


def test_the_gates_key_and_the_files_of_a_store_are_secrets() -> None:
    documents = rendered("secured")
    assert 'gate_key_file = "/etc/kinstream-gate/key"' in settings_file(documents).split("[")[0]
    with_files = set()
    for name, pod in pods(documents).items():
        secrets = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
        mounts = {one["name"]: one for one in container(pod)["volumeMounts"]}
        assert secrets["gate-key"]["secretName"] == "kinstream-gate"
        assert secrets["gate-key"]["items"] == [{"key": "key", "path": "key"}]
        assert mounts["gate-key"]["mountPath"] == "/etc/kinstream-gate"
        assert all(mounts[one]["readOnly"] for one in secrets)
        if "secret-files" in secrets:
            assert mounts["secret-files"]["mountPath"] == "/etc/kinstream-secrets"
            with_files.add((name.removeprefix("blue-kinstream-"), secrets["secret-files"]["secretName"]))
    assert with_files == {
        ("sink-main", "kinstream-stores"),
        ("serve", "kinstream-serve"),
    }
    # The files of the service's clients and of the stores are among those.
    given = yaml.safe_load(VALUES["secured"].read_text())
    for entry in (given["serve"], given["serve"]["spaces"]["docs"], *given["sinks"].values()):
        named = entry.get("settings", entry)
        file = named.get("clients_file") or named["connection_file"]
        assert file.startswith("/etc/kinstream-secrets/")
    assert "gate_key_file" not in settings_file(rendered("minimal"))
    assert not [
        one for pod in pods(rendered("minimal")).values() for one in pod["volumes"] if "secret" in one
    ]


def test_login_without_a_secret_is_refused() -> None:
    assert "kafka.saslUsername" in refusal("--set", "kafka.securityProtocol=SASL_SSL")
    told = refusal("--set", "kafka.securityProtocol=SASL_SSL,kafka.saslUsername=x")
    assert "kafka.saslPasswordSecret.name" in told


def test_a_login_by_token_is_what_the_settings_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oauth = "kafka.oauth.tokenEndpointUrl=https://id.example.org/token,kafka.oauth.clientId=learner"
    changes = ["--set", f"kafka.saslMechanism=OAUTHBEARER,{oauth},kafka.oauth.clientSecret.name=kafka-client"]
    changes += ["--set", "kafka.oauth.scope=kafka,kafka.oauth.caSecret.name=provider-ca"]
    assert "kafka.oauth.clientSecret.name" in refusal(
        "--set", f"kafka.securityProtocol=SASL_SSL,kafka.saslMechanism=OAUTHBEARER,{oauth}"
    )
    (tmp_path / "secret").write_text("hushhush")
    for pod in pods(rendered("secured", *changes)).values():
        told = {name: value for name, value in environment(pod).items() if name.startswith("KAFKA_")}
        assert "KAFKA_SASL_USERNAME" not in told and "KAFKA_SASL_PASSWORD_FILE" not in told
        (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "kafka-secrets")
        mounted = {
            f"/etc/kafka-secrets/{item['path']}": (source["secret"]["name"], item["key"])
            for source in secrets["sources"]
            for item in source["secret"]["items"]
        }
        assert mounted["/etc/kafka-secrets/client-secret"] == ("kafka-client", "client-secret")
        assert mounted[told["KAFKA_SASL_OAUTHBEARER_CA_FILE"]] == ("provider-ca", "ca.crt")
    with monkeypatch.context() as patch:
        for name, value in told.items():
            file = name.endswith(("_SECRET_FILE", "_PASSWORD_FILE"))
            patch.setenv(name, str(tmp_path / "secret") if file else value)
        kafka = KafkaSettings()
    assert kafka.by_token and kafka.sasl_oauthbearer_scope == "kafka"
    assert kafka.sasl_oauthbearer_client_secret.get_secret_value() == "hushhush"


def test_credentials_of_the_store_are_a_secret() -> None:
    for pod in pods(rendered("secured")).values():
        assert container(pod)["envFrom"] == [{"secretRef": {"name": "kinstream-s3"}}]
    told = refusal("--set", "checkpoints.url=s3://key:hush@bucket/x")
    assert "holds credentials" in told and "hush" not in told


# ---- the checkpoint store is shared -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("checkpoints.url=", "give url (an object store) or volume (ReadWriteMany)"),
        ("checkpoints.url=/var/lib/kinstream", "a path inside a pod"),
        ("checkpoints.url=checkpoints", "a path inside a pod"),
        ("checkpoints.url=file:///data", "a path inside a pod"),
        ("checkpoints.url=memory://x", "a path inside a pod"),
        (
            "checkpoints.url=,checkpoints.volume.create=true,checkpoints.volume.accessModes={ReadWriteOnce}",
            "access mode ReadWriteOnce binds the volume to one node or pod",
        ),
        (
            "checkpoints.url=,checkpoints.volume.create=true,checkpoints.volume.accessModes={ReadWriteOncePod}",
            "access mode ReadWriteOncePod binds the volume to one node or pod",
        ),
        (
            "checkpoints.url=,checkpoints.volume.existingClaim=x,checkpoints.volume.accessModes={ReadWriteOnce}",
            "access mode ReadWriteOnce binds the volume to one node or pod",
        ),
    ],
)
def test_a_store_of_one_pod_is_refused_with_the_reason(values: str, reason: str) -> None:
    told = refusal("--set", values)
    assert reason in told
    assert "a partition that moves to another pod continues from them" in told


def test_two_stores_are_refused() -> None:
    assert "give url or volume, not both" in refusal("--set", "checkpoints.volume.create=true")
    told = refusal(
        "--set", "checkpoints.url=,checkpoints.volume.create=true,checkpoints.volume.existingClaim=x"
    )
    assert "give existingClaim or create, not both" in told


def test_every_pod_has_the_one_volume_and_it_stays() -> None:
    documents = rendered("strimzi")
    (claim,) = of_kind("PersistentVolumeClaim", documents).values()
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    for pod in pods(documents).values():
        (volume,) = (one for one in pod["volumes"] if one["name"] == "checkpoints")
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        # What services may write of it: test_chart_services.py.
        mount, *_ = (one for one in container(pod)["volumeMounts"] if one["name"] == "checkpoints")
        assert (mount["mountPath"], mount.get("subPath")) == ("/var/lib/kinstream", None)
        assert mount.get("readOnly", False) is (container(pod)["args"] == ["serve"])


# ---- other refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("image.repository=", "there is no public image"),
        ("kafka.bootstrapServers=", "set the addresses of the brokers"),
        ("learners.opml.settings.from={clicks}", "learners.opml follows clicks, which is not a builder"),
        ("builders=null", "learners without builders"),
        ("learners.opml.settings.kind=null", "kind"),
        ("setings.worker.stall_seconds=1", "setings"),
        ("settings.worker.stal_seconds=1", "stal_seconds"),
        ("settings.worker.shutdown_seconds=0", "shutdown_seconds"),
        ("learners.Opml.settings.kind=opml", "Opml"),
        ("checkpoints.keep=1", "keep"),
        ("serviceMonitor.job=streams", "job"),
        ("strimzi.enabled=true", "strimzi.cluster"),
        ("serve.spaces.shop.learner=copml", "serve.spaces.shop follows copml, which is not a learner"),
        ("serve.spaces.shop.learner=opml,serve.spaces.shop.index=fast", "index"),
        ("serve.settings.threds=2", "threds"),
        (
            "serve.spaces.docs.backend=pgvector,serve.spaces.docs.collection=x,serve.spaces.docs.learner=no",
            "serve.spaces.docs follows no, which is not a learner",
        ),
        (
            "serve.spaces.docs.backend=pgvector,serve.spaces.docs.collection=x,serve.spaces.docs.connection=y",
            "connection",
        ),
        ("vectors.spaces.docs.learner=no", "vectors.spaces.docs follows no, which is not a learner"),
        (
            "sinks.main.settings.space=docs,sinks.main.settings.store=qdrant,sinks.main.settings.collection=x",
            "sinks.main takes the space docs, which is not one of vectors.spaces",
        ),
        ("gate.spaces.docs.per_user=5", "gate.keySecret.name"),
        ("gate.spaces.docs.share=much", "share"),
        ("randomise.docs.kind=swaps", "gate.keySecret.name"),
        ("randomise.docs.kind=swop", "/randomise/docs/kind"),
        ("sources.web.settings.kind=clicks", "missing property 'topic'"),
        (
            "serve.spaces.shop.learner=opml,newGeneration.agents={serve}",
            "newGeneration.agents: there is no serve",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, reason: str) -> None:
    assert reason in refusal("--set", values)


def test_strimzi_users_are_checked() -> None:
    told = refusal("--set", "strimzi.extraUsers.x.role=nobody", name="strimzi")
    assert "there is no role nobody" in told
    assert "role learner takes an agent" in refusal(
        "--set", "strimzi.extraUsers.x.role=learner", name="strimzi"
    )
    told = refusal("--set", "kafka.securityProtocol=PLAINTEXT", name="strimzi")
    assert "kafka.securityProtocol PLAINTEXT has no logins" in told
    assert "users of Strimzi need SCRAM-SHA-512" in refusal(
        "--set", "kafka.saslMechanism=PLAIN", name="strimzi"
    )
    told = refusal("--set", "kafka.securityProtocol=SSL", name="strimzi")
    assert "SSL without SASL needs tls" in told


# ---- topics and users of Strimzi ----------------------------------------------------------------------------------


def test_the_generated_files_are_what_the_code_says() -> None:
    assert strimzi.main(["--check"]) == 0


def test_a_generated_file_that_is_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strimzi, "FOLDER", tmp_path)
    assert strimzi.main(["--check"]) == 1
    assert strimzi.main([]) == 0
    assert strimzi.main(["--check"]) == 0
    (tmp_path / "topics.json").write_text("{}")
    assert strimzi.main(["--check"]) == 1


@pytest.mark.parametrize("replication", [1, 2, 3, 5])
def test_the_topics_of_strimzi_are_the_catalogue(replication: int) -> None:
    values = ["--set", f"settings.topics.replication={replication},settings.topics.partitions=12"]
    found = of_kind("KafkaTopic", rendered("strimzi", *values, "--set", "settings.topics.prefix=blue"))
    assert found.keys() == {topic.name("blue") for topic in CATALOGUE}
    for topic in CATALOGUE:
        document = found[topic.name("blue")]
        assert document["spec"] == {
            "partitions": 12,
            "replicas": replication,
            "config": topic.config(replication),
        }
        assert document["metadata"]["labels"]["strimzi.io/cluster"] == "streams"
        assert document["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_topics_are_created_by_one_of_the_two() -> None:
    jobs = of_kind("Job", rendered("minimal"))
    assert [container(job["spec"]["template"]["spec"])["args"] for job in jobs.values()] == [
        ["topics", "create"]
    ]
    assert not of_kind("Job", rendered("strimzi"))
    assert not of_kind("Job", rendered("minimal", "--set", "createTopics=false"))
    # A Job that is there cannot be changed.
    others = of_kind("Job", rendered("minimal", "--set", "settings.topics.partitions=12"))
    assert jobs.keys().isdisjoint(others)


def test_a_user_of_strimzi_may_what_its_role_needs() -> None:
    documents = rendered("strimzi", "--set", "settings.topics.prefix=red")
    users = of_kind("KafkaUser", documents)
    wanted: dict[str, list[dict[str, Any]]] = {
        "blue-kinstream-builder-one-pass": as_json(role("builder").grants("red", "one-pass")),
        "blue-kinstream-learner-opml": as_json(role("learner").grants("red", "opml")),
        "blue-kinstream-metrics": as_json(role("metrics").grants("red")),
        "blue-kinstream-serve": as_json(role("serve").grants("red")),
        "blue-kinstream-learner-queries": as_json(role("learner").grants("red", "queries")),
        "blue-kinstream-gate": as_json(role("gate").grants("red")),
        "blue-kinstream-source-orders": as_json(role("source").grants("red", "orders", ["shop.orders"])),
        "mender": as_json(role("redrive").grants("red", None, ["shop.orders"])),
        "shop": as_json(role("producer").grants("red")),
        "search": as_json(role("models").grants("red")),
    }
    assert {name: user["spec"]["authorization"]["acls"] for name, user in users.items()} == wanted


def test_every_agent_logs_in_as_its_own_user() -> None:
    documents = rendered("strimzi")
    for name in of_kind("Deployment", documents):
        pod = pods(documents)[name]
        told = environment(pod)
        assert told["KAFKA_SASL_USERNAME"] == name
        assert told["KAFKA_BOOTSTRAP_SERVERS"] == "streams-kafka-bootstrap:9093"
        (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "kafka-secrets")
        assert [source["secret"]["name"] for source in secrets["sources"]] == [
            name,
            "streams-cluster-ca-cert",
        ]


def test_users_of_strimzi_may_have_certificates() -> None:
    values = ["--set", "strimzi.authentication=tls,kafka.securityProtocol=SSL"]
    documents = rendered("strimzi", *values)
    for user in of_kind("KafkaUser", documents).values():
        assert user["spec"]["authentication"] == {"type": "tls"}
    pod = pods(documents)["blue-kinstream-metrics"]
    assert "KAFKA_SASL_USERNAME" not in environment(pod)
    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "kafka-secrets")
    keys = [item["key"] for source in secrets["sources"] for item in source["secret"]["items"]]
    assert keys == ["ca.crt", "user.crt", "user.key"]


# ---- Prometheus and Grafana -------------------------------------------------------------------------------------


def test_prometheus_finds_every_worker() -> None:
    documents = rendered("secured")
    (monitor,) = of_kind("ServiceMonitor", documents).values()
    service = of_kind("Service", documents)["blue-kinstream"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    assert service["spec"]["publishNotReadyAddresses"] is True
    for name, one in of_kind("Deployment", documents).items():
        assert service["spec"]["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
        if name != "blue-kinstream-vectors-watch":
            assert container(pods(documents)[name])["ports"][0]["name"] == port["targetPort"]
    # The monitor sees the other Service as well, and must not ask an agent twice.
    others = [one for one in of_kind("Service", documents).values() if one is not service]
    assert len(others) == 1
    assert endpoint["port"] not in [one["name"] for other in others for one in other["spec"]["ports"]]


def test_the_job_is_one_that_rules_and_dashboards_know() -> None:
    (monitor,) = of_kind("ServiceMonitor", rendered("secured")).values()
    (relabelling,) = monitor["spec"]["endpoints"][0]["relabelings"]
    assert relabelling["targetLabel"] == "job"
    assert relabelling["replacement"] == "kinstream-ml-blue"
    alerts = (CHART / "files" / "kinstream.alerts.yml").read_text(encoding="utf-8")
    patterns = set(re.findall(r'job=~"([^"]+)"', alerts))
    assert patterns and all(re.fullmatch(pattern, relabelling["replacement"]) for pattern in patterns)


@pytest.mark.parametrize("rules", ["recording", "alerts"])
def test_the_rules_are_those_of_the_file(rules: str) -> None:
    found = of_kind("PrometheusRule", rendered("secured"))[f"blue-kinstream-{rules}"]
    file = CHART / "files" / f"kinstream.{rules}.yml"
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    assert groups and found["spec"]["groups"] == groups
    names = [one["name"] for one in groups]
    assert len(set(names)) == len(names)


def test_the_dashboards_are_those_of_the_folder() -> None:
    files = {path.name: path for path in (CHART / "files" / "dashboards").glob("*.json")}
    found = {
        file: text
        for one in of_kind("ConfigMap", rendered("secured")).values()
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
        for file, text in one["data"].items()
    }
    assert found.keys() == files.keys() and files
    assert {name: json.loads(text) for name, text in found.items()} == {
        name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items()
    }
