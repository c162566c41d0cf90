"""compose.yaml walked without Docker: every service from the image, on a network of hosts, as the file says.

Grafana is the one service that does not run: no server of it is within reach of the test machines. What it would do is
done in its place: the expressions of every panel are asked at the address that its data source has in the file.
Spans go to a collector of these tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml

from tests.deploy.image.build import DEPLOY, Image
from tests.deploy.image.composed import POSTGRES, POSTGRES_URL, TOPIC, Composed
from tests.deploy.image.network import PREFIX
from tests.deploy.monitoring.boards import FILES, asks, filled, read
from tests.deploy.monitoring.live import expressions, without_data
from tests.deploy.test_compose import IMAGE, services, settings
from tests.support.processes import until
from tests.traces.collector import Collector, collecting

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.timeout(1800)]
#: Services of the file that do not run here.
ABSENT: Final = {"grafana"}
#: Roles of which the file has no service: they run as its builder does, with these commands and settings.
OTHERS: Final = {
    "gate": ["worker", "gate", "--create"],
    "source": ["worker", "source", "web", "--create"],
    "vectors": ["worker", "vectors", "--create"],
    "builder-closure": ["worker", "builder", "closure", "--create"],
    "learner-mixture": ["worker", "learner", "mixture", "--create"],
    "learner-adapter": ["worker", "learner", "adapter", "--create"],
    "sink": ["worker", "sink", "main", "--create"],
    "serve-store": ["serve"],
    "serve-gated": ["serve"],
}
#: Where it answers, of those that have another address than the file's builder.
PORTS: Final = {"serve-store": 8088, "serve-gated": 8088}
#: What gives the space of the file's service a store.
STORED: Final = """backend = "pgvector"
connection_file = "/etc/kinstream/store"
collection = "plain"
"""
#: On the bridge's side of the network.
COLLECTOR: Final = (f"{PREFIX}1", 4318)
#: Names the collector in the environment of `docker compose`.
ENDPOINT: Final = "KINSTREAM_TRACES__ENDPOINT"
#: Of every request that these tests send.
TRACEPARENT: Final = f"00-{'a' * 32}-{'b' * 16}-01"
SETTINGS_OF_OTHERS: Final = """gate_key_file = "/etc/kinstream/gate-key"
{settings}
[builders.closure]
kind = "closure"

[learners.mixture]
kind = "mixture"
from = ["one-pass"]

[learners.adapter]
kind = "adapter"
from = ["one-pass"]

[gate.digits]
share = 0.2

[randomise.digits]
kind = "swaps"
share = 0.5

[vectors.digits]
learner = "adapter"

[sinks.main]
space = "digits"
store = "pgvector"
connection_file = "/etc/kinstream/store"
collection = "mapped"

[sources.web]
topic = "web"
kind = "relations"
space = "digits"
fields = {{left = "a", right = "b"}}
"""


class Client:
    """HTTP on the network of the composed system."""

    def __init__(self, system: Composed) -> None:
        self._system = system

    def get(self, service: str, port: int, path: str, body: Any = None, **parameters: str) -> Any:
        """JSON, or text where it is none; None if there is no answer."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        url = f"http://{self._system.network.address(service)}:{port}{path}{query}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "traceparent": TRACEPARENT}
        request = urllib.request.Request(url, data, headers)

        def work() -> str | None:
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{url}: {error.read().decode()}") from error
            except OSError:
                return None

        text = self._system.network.inside(work)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return text

    def query(self, expr: str) -> list[dict[str, Any]]:
        """An instant query at Prometheus; an expression that it refuses is an error."""
        answer = self.get("prometheus", 9090, "/api/v1/query", query=expr)
        found = answer["data"]["result"] if answer else []
        return (
            [{"metric": {}, "value": found}] if answer and answer["data"]["resultType"] == "scalar" else found
        )


def test_every_service_runs_as_the_file_says(image: Image, tmp_path: Path) -> None:
    found = services()
    own = sorted(name for name, one in found.items() if one["image"] == IMAGE)
    serving = [name for name in own if "healthcheck" in found[name]]
    present = traced({name: one for name, one in found.items() if name not in ABSENT} | others(tmp_path))
    with Composed(present, image, tmp_path) as system, ExitStack() as stack:
        client = Client(system)
        collector = system.network.inside(lambda: stack.enter_context(collecting(*COLLECTOR)))
        system.start("kafka")
        system.wait_until_healthy("kafka")
        system.complete("topics")
        system.complete("gate-models")
        for name in serving:
            system.start(name)
        system.start("prometheus")
        system.start("alertmanager")
        for name in serving:
            system.wait_until_healthy(name)
        # Nothing of the file is left out but what is named above.
        assert set(found) - ABSENT - system.running.keys() == {"kinstream"}
        for name in own:
            told = system.specification(name)
            assert (told.root, told.uid, told.rights) == (image.root, 10001, False)

        digits = ("labelled", "sklearn:digits", "--space", "digits")
        produced = system.run("kinstream", "produce", *digits, "--json")
        assert json.loads(produced.splitlines()[-1])["rows"] == 1797
        system.run("kinstream", "produce", "items", *items(tmp_path), "--space", "digits")
        learners = settings().learners.keys()
        counts = "sum by (learner) (kinstream_constraints_seen_total)"
        until(
            lambda: (
                {one["metric"]["learner"] for one in client.query(counts) if float(one["value"][1]) > 0}
                == learners
            ),
            "Prometheus has the figures of every learner",
        )
        # A model is in the log after the checkpoint that holds it.
        until(
            lambda: all(name in system.run("kinstream", "models", "list") for name in learners),
            "every learner has written a model",
        )

        check_search(client)
        check_monitoring(client, serving)

        made = system.running["kafka"].check(TOPIC, 60.0)
        assert made.returncode == 0, made.stdout + made.stderr
        system.start("postgres")
        system.wait_until_healthy("postgres")
        fill(system)
        for name in OTHERS:
            system.start(name)
        for name in OTHERS:
            system.wait_until_healthy(name)
        check_stores(client, system)
        check_comparison(client, system, tmp_path)
        check_traces(collector)

        statuses = system.stop([*serving, *OTHERS, "postgres", "prometheus", "alertmanager"])
        logs = {name: system.running[name].text()[-3000:] for name, status in statuses.items() if status}
        assert not logs, "\n".join(f"{name} ended with {statuses[name]}: {log}" for name, log in logs.items())
        assert system.stop(["kafka"])["kafka"] in (0, 143)
        left = {path.stat().st_uid for path in (tmp_path / "volumes" / "checkpoints").rglob("*")}
        assert left == {10001}


def others(folder: Path) -> dict[str, dict[str, Any]]:
    """Services like the builder of the file."""
    like = services()["builder-one-pass"]
    text = (DEPLOY / "compose" / "kinstream.toml").read_text()
    # In a space with a gate all services ask with one learner.
    text = text.replace('learner = "opml"', 'learner = "adapter"')
    space = '[serve.spaces.digits]\nlearner = "adapter"\n'
    assert space in text
    files = {
        "kinstream.toml": SETTINGS_OF_OTHERS.format(settings=text),
        "store.toml": SETTINGS_OF_OTHERS.format(settings=text.replace(space, space + STORED)),
        "gate-key": "0123456789abcdef" * 3,
        "store": POSTGRES_URL,
    }
    volumes = [one for one in like["volumes"] if one["type"] != "bind"]
    for name, content in files.items():
        (folder / name).write_text(content)
        target = f"/etc/kinstream/{name}"
        volumes.append({"type": "bind", "source": str(folder / name), "target": target, "read_only": True})
    found = {name: {**like, "command": command, "volumes": volumes} for name, command in OTHERS.items()}
    (of_all,) = (one for one in volumes if one["target"] == "/etc/kinstream/kinstream.toml")
    found["serve-store"]["volumes"] = [
        one | {"source": str(folder / "store.toml")} if one is of_all else one for one in volumes
    ]
    for name, port in PORTS.items():
        check = like["healthcheck"]
        test = [word.replace(":9108/", f":{port}/") for word in check["test"]]
        assert test != check["test"]
        found[name]["healthcheck"] = check | {"test": test}
    return found | {"postgres": POSTGRES, "prometheus": scraping(folder)}


def scraping(folder: Path) -> dict[str, Any]:
    """The Prometheus of the file, which scrapes the other services as well."""
    found = services()["prometheus"]
    targets = folder / "targets"
    shutil.copytree(DEPLOY / "compose" / "targets", targets)
    more = [f"{name}:{PORTS.get(name, 9108)}" for name in OTHERS]
    (targets / "others.yml").write_text(yaml.safe_dump([{"targets": more}]))
    volumes = [
        one | ({"source": str(targets)} if one["target"] == "/etc/prometheus/targets" else {})
        for one in found["volumes"]
    ]
    assert volumes != found["volumes"]
    return found | {"volumes": volumes}


def traced(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The services as they are if the environment of `docker compose` names the collector."""
    host, port = COLLECTOR
    told = {ENDPOINT: f"http://{host}:{port}"}
    for one in found.values():
        assert (one["image"] == IMAGE) == ((one.get("environment") or {}).get(ENDPOINT) == "")
    return {
        name: one | ({"environment": one["environment"] | told} if one["image"] == IMAGE else {})
        for name, one in found.items()
    }


def vectors() -> list[list[int]]:
    """Of the catalogue."""
    return [[(row * step) % 17 for step in range(1, 65)] for row in range(200)]


def fill(system: Composed) -> None:
    """The catalogue as it is, in the store."""

    def work() -> None:
        with connected(system) as connection:
            connection.execute("create extension vector")
            connection.execute("create table plain (id text primary key, embedding vector(64))")
            rows = [(str(row), str(x)) for row, x in enumerate(vectors())]
            connection.cursor().executemany("insert into plain values (%s, %s)", rows)

    system.network.inside(work)


def connected(system: Composed) -> psycopg.Connection[Any]:
    """To the store, from the bridge's side of the network."""
    url = POSTGRES_URL.replace("@postgres:", f"@{system.network.address('postgres')}:")
    return psycopg.connect(url, autocommit=True)


def check_stores(client: Client, system: Composed) -> None:
    """A service asks the store with a learned model, and the sink shows a version of the catalogue in it."""
    asked = {"space": "digits", "vectors": [[float(number % 17) for number in range(64)]], "k": 3}

    def answers(adapted: bool) -> bool:
        answer = client.get("serve-store", 8088, "/search", asked)
        return (
            bool(answer)
            and answer["model"]["adapted"] == adapted
            and len(answer["results"][0]["neighbours"]) == 3
        )

    until(lambda: answers(adapted=False), "the service answers; no model was promoted")

    def model() -> re.Match[str] | None:
        return re.search(
            r"^digits +adapter +\S+ +(\d+) +(\d+) +(\d+) ", system.run("gate", "models", "list"), re.M
        )

    until(lambda: model() is not None, "the adapter has written a model")
    found = model()
    assert found is not None
    system.run("gate", "gate", "promote", "digits", "--version", ".".join(found.groups()), "--yes")
    until(lambda: answers(adapted=True), "the service answers by the promoted model")
    system.run("vectors", "--set", "vectors.digits.moved=0", "vectors", "watch", "--once")

    def shown() -> int:
        with connected(system) as connection:
            try:
                (found,) = connection.execute("select count(*) from mapped").fetchone() or (0,)
            except psycopg.errors.UndefinedTable:
                return 0
            return int(found)

    until(lambda: system.network.inside(shown) == len(vectors()), "the sink shows the whole version")


def check_comparison(client: Client, system: Composed, folder: Path) -> None:
    """The panels about gate, stores, exposure and traces have data once clicks on drafted lists are there."""
    asked = {"space": "digits", "vectors": vectors()[1:17], "k": 5}
    until(lambda: client.query("kinstream_exposure_lists_total"), "Prometheus has the page of the gate")
    lists = client.get("serve-store", 8088, "/search", asked)["results"]
    assert any(one["list_id"] for one in lists)
    written = []
    for number, one in enumerate(lists):
        shown = [hit["id"] for hit in one["neighbours"]]
        clicks = [{"item": item} for item in shown[:2]]
        list_id = one["list_id"] or f"ranked-{number}"
        written.append(json.dumps({"list_id": list_id, "items": shown, "clicks": clicks}))
    file = work_file(folder, "lists.jsonl", written)
    system.run("kinstream", "produce", "clicks", file, "--space", "digits", "--field", "time=@timestamp")
    empty = expressions(elsewhere=True)

    def all_have_data() -> bool:
        client.get("serve-store", 8088, "/search", asked)
        empty[:] = without_data(client.query, empty)
        return not empty

    try:
        until(all_have_data, "every panel has data", every=3.0)
    except TimeoutError as error:
        raise AssertionError(f"without data: {[ask.place for ask in empty]}") from error


def check_traces(collector: Collector) -> None:
    """Containers of every role export spans."""
    wanted = {"produce", "builder-one-pass", "learner-opml", "metrics", "serve"}
    until(
        lambda: {f"kinstream-{name}" for name in wanted} <= {service for service, _ in collector.spans},
        "spans of every role have come",
    )


def items(folder: Path) -> list[str]:
    """A catalogue where the command is started."""
    rows = [f"{row}," + ",".join(map(str, x)) for row, x in enumerate(vectors())]
    header = "id," + ",".join(f"f{column}" for column in range(64))
    return [work_file(folder, "items.csv", [header, *rows])]


def work_file(folder: Path, name: str, lines: list[str]) -> str:
    """A file where commands are started; its name."""
    path = folder / "volumes" / "work" / name
    path.write_text("\n".join(lines) + "\n")
    os.chown(path, 10001, 10001)
    return name


def check_search(client: Client) -> None:
    """The service answers with a learned model."""
    asked = {"vectors": [[float(number % 17) for number in range(64)]], "k": 3}

    def learned() -> bool:
        answer = client.get("serve", 8088, "/search", {"space": "digits", **asked})
        return bool(answer) and len(answer["results"][0]["neighbours"]) == 3

    until(learned, "the service answers")


def check_monitoring(client: Client, serving: list[str]) -> None:
    """Prometheus reaches every agent and Alertmanager, its rules work, and every panel of Grafana has an answer."""
    targets = client.get("prometheus", 9090, "/api/v1/targets")["data"]["activeTargets"]
    assert {one["labels"]["instance"].split(":")[0] for one in targets if one["health"] == "up"} == set(
        serving
    )
    managers = client.get("prometheus", 9090, "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    assert [one["url"] for one in managers] == ["http://localhost:9093/api/v2/alerts"]
    assert client.get("prometheus", 9093, "/api/v2/status")["config"]["original"]
    groups = client.get("prometheus", 9090, "/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 50 and not [rule for rule in rules if rule.get("lastError")]
    answered = {ask.place: len(client.query(filled(ask.expr))) for path in FILES for ask in asks(read(path))}
    print(f"{len(answered)} queries of panels, {sum(count > 0 for count in answered.values())} with data")
    # No gate runs yet, so its page is empty.
    with_data = {place.partition(":")[0] for place, count in answered.items() if count}
    assert with_data >= {"kinstream-stream", "kinstream-learners", "kinstream-learning"}
