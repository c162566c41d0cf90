"""What pods of the chart read and write, who reaches them as Kubernetes judges it, and where their alerts link to."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import pytest
import yaml

from kinstream.search.models.model_copies import FOLDER
from kinstream.streams.kafka.rights.acls import as_json, role
from kinstream.streams.settings import Settings
from tests.deploy.charts import (
    CHART,
    NAMESPACE,
    VALUES,
    Document,
    container,
    environment,
    of_kind,
    pods,
    refusal,
    rendered,
    settings_file,
)
from tests.deploy.test_chart import read_settings
from tests.deploy.volumes import STORE, Mount, Volume

#: The first test may have to build Helm.
pytestmark = pytest.mark.timeout(1200)
SERVICE: Final = "blue-kinstream-serve"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


# ---- settings ---------------------------------------------------------------------------------------------------

#: Texts that are not the defaults, where a schema has no list of them.
TEXTS: Final = {
    "topics.prefix": "blue",
    "worker.http_host": "127.0.0.1",
    "traces.endpoint": "http://collector:4318",
}


def other(name: str, schema: Mapping[str, Any], default: Any) -> Any:
    """A value that the schema takes and that is not the default."""
    if "enum" in schema:
        return next(one for one in schema["enum"] if one != default)
    kind = schema["type"]
    if kind == "boolean":
        return not default
    return TEXTS[name] if kind == "string" else (default or 1) + 1


def test_every_setting_that_the_schema_takes_arrives_and_is_read(tmp_path: Path) -> None:
    sections = SCHEMA["properties"]["settings"]["properties"]
    known = Settings()
    given = {
        section: {
            name: other(f"{section}.{name}", taken, getattr(getattr(known, section), name))
            for name, taken in schema["properties"].items()
        }
        for section, schema in sections.items()
    }
    documents = rendered("minimal", "--set-json", f"settings={json.dumps(given)}")
    written = tomllib.loads(settings_file(documents))
    assert {section: written.get(section) for section in sections} == given
    read = read_settings(documents, tmp_path)
    # `kinstream up` alone runs agents together.
    alone = {"worker": {"together"}}
    assert {
        section: getattr(read, section).model_dump(exclude=alone.get(section)) for section in sections
    } == given


# ---- the checkpoint volume ----------------------------------------------------------------------------------------


def store_mounts(found: Document) -> list[Mount]:
    """The mounts of the checkpoint volume in a container."""
    return [
        Mount(one.get("subPath", ""), one["mountPath"], one.get("readOnly", False))
        for one in found["volumeMounts"]
        if one["name"] == "checkpoints"
    ]


WHOLE: Final = Mount("", STORE, read_only=False)
READ: Final = Mount("", STORE, read_only=True)
COPIES: Final = Mount(FOLDER, f"{STORE}/{FOLDER}", read_only=False)


@pytest.mark.parametrize(
    ("gates", "copies"),
    [
        ("{}", False),
        ('{"shop": {"share": 0.2}}', True),
        ('{"shop": {}, "docs": {}}', True),
        ('{"elsewhere": {}}', False),
    ],
)
def test_the_service_writes_nothing_but_copies_of_models_of_its_gates(gates: str, copies: bool) -> None:
    for name, pod in pods(rendered("strimzi", "--set-json", f"gate.spaces={gates}")).items():
        wanted = [WHOLE] if name != SERVICE else [READ, COPIES] if copies else [READ]
        assert store_mounts(container(pod)) == wanted, name
        first = pod.get("initContainers", [])
        assert bool(first) is (copies and name == SERVICE)
        for one in first:
            assert store_mounts(one) == [WHOLE] and len(one["volumeMounts"]) == 1
            assert one["image"] == container(pod)["image"]
            for key in ("resources", "securityContext", "imagePullPolicy"):
                assert one[key] == container(pod)[key]


def test_an_object_store_is_not_mounted() -> None:
    for pod in pods(rendered("secured")).values():
        assert not store_mounts(container(pod)) and "initContainers" not in pod


def test_a_service_with_a_gate_copies_models_in_a_volume_that_is_mounted_as_its_pod_says(
    tmp_path: Path,
) -> None:
    gated = pods(rendered("strimzi"))[SERVICE]
    plain = pods(rendered("strimzi", "--set-json", "gate.spaces={}"))[SERVICE]
    volume = Volume(tmp_path)
    (first,) = gated["initContainers"]
    interpreter, *python = first["command"]
    assert PurePosixPath(interpreter).name == "python"
    refused = dict.fromkeys(("copies", "learner-opml", "gate", "new"), "Read-only file system")
    assert volume.faults(store_mounts(container(plain))) == refused
    for _ in range(2):
        # It runs at every start of a pod.
        assert volume.run(store_mounts(first), python) == ""
    assert volume.faults(store_mounts(container(gated))) == refused | {"copies": None}


# ---- the network ----------------------------------------------------------------------------------------------------


class Far(NamedTuple):
    """The other end of a connection: a pod, or an address outside of the cluster if it has no namespace."""

    namespace: str = ""
    labels: Mapping[str, str] = {}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector of Kubernetes fits; an empty one fits everything."""
    for one in selector.get("matchExpressions", ()):
        exists = one["key"] in labels
        among = exists and labels[one["key"]] in one.get("values", ())
        fits = {"In": among, "NotIn": not among, "Exists": exists, "DoesNotExist": not exists}
        if not fits[one["operator"]]:
            return False
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def is_peer(peer: Document, far: Far) -> bool:
    """Whether a peer of a rule names the other end."""
    assert peer and peer.keys() <= {"namespaceSelector", "podSelector"}, "ipBlock is not needed so far"
    if not far.namespace:
        return False
    space = peer.get("namespaceSelector")
    named = {"kubernetes.io/metadata.name": far.namespace}
    near = far.namespace == NAMESPACE if space is None else selects(space, named)
    return near and selects(peer.get("podSelector", {}), far.labels)


def is_port(entry: Document, port: int, protocol: str, named: Mapping[str, int]) -> bool:
    """Whether a port of a rule is this one; `named` has those that a pod gives names to."""
    if entry.get("protocol", "TCP") != protocol:
        return False
    first: Any = entry.get("port", port)
    if isinstance(first, str):
        return named.get(first) == port
    return bool(first <= port <= entry.get("endPort", first))


def admitted(
    policies: Iterable[Document], pod: Document, direction: str, far: Far, port: int, protocol: str = "TCP"
) -> bool:
    """Whether a connection is admitted, by the policies of the pod's namespace.

    A pod is open until a policy with the direction selects it; then what any rule of these policies admits is admitted.
    A rule without ports is for all ports, and one without peers for all peers.
    """
    rules, peers = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    ports = container(pod["spec"]).get("ports", ())
    named = {one["name"]: one["containerPort"] for one in ports} if direction == "Ingress" else {}
    selecting = [
        one["spec"]
        for one in policies
        if selects(one["spec"]["podSelector"], pod["metadata"]["labels"])
        and direction in one["spec"].get("policyTypes", ("Ingress", *("Egress",) * ("egress" in one["spec"])))
    ]
    return not selecting or any(
        (not rule.get("ports") or any(is_port(one, port, protocol, named) for one in rule["ports"]))
        and (not rule.get(peers) or any(is_peer(one, far) for one in rule[peers]))
        for spec in selecting
        for rule in spec.get(rules, ())
    )


def policy(text: str) -> Document:
    return {"spec": {"podSelector": {}} | yaml.safe_load(text)}


ALICE: Final = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: alice}}"
CLIENT: Final = "podSelector: {matchLabels: {role: client}}"
#: One peer, which is a client of Alice; and two, which are all of Alice, and clients of the policy's own namespace.
BOTH: Final = f"ingress: [{{from: [{{{ALICE}, {CLIENT}}}]}}]"
EITHER: Final = f"ingress: [{{from: [{{{ALICE}}}, {{{CLIENT}}}]}}]"
ANY_POD: Final = "ingress: [{from: [{namespaceSelector: {}}]}]"


def expression(text: str) -> str:
    """A policy that admits nothing to the pods for which an expression about labels holds."""
    return f"{{podSelector: {{matchExpressions: [{{{text}}}]}}, policyTypes: [Ingress]}}"


@pytest.mark.parametrize(
    ("policies", "far", "wanted"),
    [
        # The examples of Kubernetes' own page on policies.
        ([], Far("bob"), True),
        (["policyTypes: [Ingress]"], Far("bob"), False),
        (["policyTypes: [Egress]"], Far("bob"), True),
        (["ingress: [{}]"], Far(), True),
        (["policyTypes: [Ingress]", "ingress: [{}]"], Far(), True),
        (["{podSelector: {matchLabels: {role: frontend}}, policyTypes: [Ingress]}"], Far("bob"), True),
        ([BOTH], Far("alice", {"role": "client"}), True),
        ([BOTH], Far("alice"), False),
        ([BOTH], Far(NAMESPACE, {"role": "client"}), False),
        ([EITHER], Far("alice"), True),
        ([EITHER], Far("bob", {"role": "client"}), False),
        ([EITHER], Far(NAMESPACE, {"role": "client"}), True),
        ([ANY_POD], Far("bob"), True),
        ([ANY_POD], Far(), False),
        (["ingress: [{ports: [{port: 80}]}]"], Far("bob"), True),
        (["ingress: [{ports: [{port: http}]}]"], Far("bob"), True),
        (["ingress: [{ports: [{port: metrics}]}]"], Far("bob"), False),
        (["ingress: [{ports: [{port: 80, protocol: UDP}]}]"], Far("bob"), False),
        (["ingress: [{ports: [{port: 79, endPort: 81}]}]"], Far("bob"), True),
        (["ingress: [{ports: [{port: 81, endPort: 90}]}]"], Far("bob"), False),
        ([expression("key: role, operator: NotIn, values: [db]")], Far("bob"), True),
        ([expression("key: role, operator: In, values: [db]")], Far("bob"), False),
        # Objects without the label are among those that NotIn takes.
        ([expression("key: tier, operator: NotIn, values: [db]")], Far("bob"), False),
        ([expression("key: tier, operator: DoesNotExist")], Far("bob"), False),
        ([expression("key: tier, operator: Exists")], Far("bob"), True),
    ],
)
def test_policies_are_judged_as_kubernetes_does(policies: list[str], far: Far, wanted: bool) -> None:
    database = {
        "metadata": {"labels": {"role": "db"}},
        "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 80}]}]},
    }
    assert admitted(map(policy, policies), database, "Ingress", far, 80) is wanted


#: Who connects, by name.
EVERYBODY: Final = {
    "monitoring": Far("monitoring"),
    "shop": Far("shop"),
    "other": Far("other"),
    "outside": Far(),
}


@pytest.mark.parametrize(
    ("removed", "metrics", "queries"),
    [
        ((), {"monitoring"}, {"monitoring", "shop"}),
        # The page of a service is at the port of queries, so that it is not open to all with `from` empty.
        (("from",), set(EVERYBODY), {"shop"}),
        (("serveFrom",), {"monitoring"}, set(EVERYBODY)),
        (("from", "serveFrom"), set(EVERYBODY), set(EVERYBODY)),
    ],
)
def test_workers_and_services_are_reached_by_their_own_clients(
    removed: tuple[str, ...], metrics: set[str], queries: set[str]
) -> None:
    documents = rendered(
        "secured", *(word for one in removed for word in ("--set", f"networkPolicy.{one}=null"))
    )
    policies = of_kind("NetworkPolicy", documents).values()
    for name, deployment in of_kind("Deployment", documents).items():
        pod = deployment["spec"]["template"]
        for port in {one["containerPort"] for one in container(pod["spec"]).get("ports", ())} | {22}:
            wanted = set() if port == 22 else queries if name == SERVICE else metrics
            found = {who for who, far in EVERYBODY.items() if admitted(policies, pod, "Ingress", far, port)}
            assert found == wanted, (name, port)


def test_without_a_policy_everybody_reaches_everything() -> None:
    assert not of_kind("NetworkPolicy", rendered("strimzi"))
    for found in rendered("strimzi", "--set", "networkPolicy.enabled=true"):
        if found["kind"] == "NetworkPolicy":
            assert "from" not in found["spec"]["ingress"][0] and "egress" not in found["spec"]


def test_pods_reach_what_they_need_and_nothing_else(tmp_path: Path) -> None:
    documents = rendered("secured")
    policies = of_kind("NetworkPolicy", documents).values()
    owners = of_kind("Deployment", documents) | of_kind("Job", documents)
    (tmp_path / "docs").write_text("postgresql://postgres/docs")
    settings = read_settings(documents, tmp_path, str(tmp_path))
    assert settings.checkpoints.url.startswith("s3://")
    assert {one.backend for one in settings.serve.stored.values()} == {"pgvector"}
    assert {one.store for one in settings.sinks.values()} == {"pgvector"}
    collector = int(settings.traces.endpoint.rpartition(":")[2])
    for name, owner in owners.items():
        pod = owner["spec"]["template"]
        brokers = environment(pod["spec"])["KAFKA_BOOTSTRAP_SERVERS"].split(",")
        needed = {*(int(one.rpartition(":")[2]) for one in brokers), 443, 53, collector}
        if "serve" in name or "sink" in name:
            needed.add(5432)
        for port in needed:
            assert admitted(policies, pod, "Egress", Far(), port), (name, port)
        assert admitted(policies, pod, "Egress", Far(), 53, "UDP")
        assert not admitted(policies, pod, "Egress", Far(), 22), name


# ---- the stores of the values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_stores_are_in_the_default_image_and_their_connections_in_secrets(name: str) -> None:
    containerfile = (CHART.parents[1] / "Containerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", containerfile, re.M)
    told = tomllib.loads(settings_file(rendered(name)))
    spaces = told.get("serve", {}).get("spaces", {}).values()
    users = [("serve", one, one["backend"]) for one in spaces if "backend" in one]
    users += [(f"sink-{sink}", one, one["store"]) for sink, one in told.get("sinks", {}).items()]
    assert bool(users) is (name != "minimal")
    for agent, entry, store in users:
        assert store in extras.split(",")
        mounts = {
            one["name"]: one
            for one in container(pods(rendered(name))[f"blue-kinstream-{agent}"])["volumeMounts"]
        }
        assert str(PurePosixPath(entry["connection_file"]).parent) == mounts["secret-files"]["mountPath"]


# ---- links to the runbooks ------------------------------------------------------------------------------------------


def test_alerts_and_panels_link_to_the_runbooks_of_the_values() -> None:
    address = "https://example.org/kinstream/runbooks"
    plain, linked = (
        [one for one in rendered("secured", *more) if one["kind"] in ("PrometheusRule", "ConfigMap")]
        for more in ((), ("--set", f"monitoring.runbooks={address}"))
    )
    assert json.dumps(plain).replace("docs/runbooks.md", address) == json.dumps(linked)
    rules = [
        rule
        for one in linked
        if one["kind"] == "PrometheusRule"
        for group in one["spec"]["groups"]
        for rule in group["rules"]
    ]
    links = [rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule]
    assert links and all(link.startswith(f"{address}#kinstream") for link in links)
    boards = [
        json.loads(text)
        for one in linked
        for file, text in one.get("data", {}).items()
        if file.endswith(".json")
    ]
    constants = [one for board in boards for one in board["templating"]["list"] if one["name"] == "runbooks"]
    assert constants and all({one["query"], one["current"]["value"]} == {address} for one in constants)


@pytest.mark.parametrize("address", ["docs/runbooks.md", "https://x/a b", 'https://x/"'])
def test_what_is_no_address_of_runbooks_is_refused(address: str) -> None:
    assert "/monitoring/runbooks" in refusal("--set-json", f"monitoring.runbooks={json.dumps(address)}")


def test_a_service_that_records_may_write_lists_and_has_the_key_of_their_ids() -> None:
    source = "sources.feedback.settings.topic=kinstream.feedback,sources.feedback.settings.preset=feedback"
    values = (
        f"serve.spaces.shop.learner=opml,serve.spaces.shop.record=true,gate.keySecret.name=a-secret,{source}"
    )
    documents = rendered("strimzi", "--set", values)
    (user,) = (one for name, one in of_kind("KafkaUser", documents).items() if name.endswith("-serve"))
    assert user["spec"]["authorization"]["acls"] == as_json(role("serve-record").grants())
    service = pods(documents)["blue-kinstream-serve"]
    secrets = {one["name"]: one["secret"] for one in service["volumes"] if "secret" in one}
    assert secrets["gate-key"]["secretName"] == "a-secret"
    assert "record = true" in settings_file(documents)
