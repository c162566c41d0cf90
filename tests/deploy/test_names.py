"""One source for names: topics, ports, metrics, settings, groups and commands in deploy/ are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, get_args

import click
import pytest
import yaml

from kinstream.cli.main import cli
from kinstream.cli.shared.agents import agent_spec
from kinstream.monitoring.roster import UNLEARNED
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.configuration.vectors import SinkSettings, VectorsSettings
from kinstream.streams.settings import (
    BuilderSettings,
    KafkaSettings,
    LearnerSettings,
    ServeSettings,
    ServeSpaceSettings,
    Settings,
)
from kinstream.streams.topics import CATALOGUE
from tests.deploy.charts import CHART, VALUES, container, environment, of_kind, pods, rendered, settings_file
from tests.deploy.go_tools import ROOT
from tests.docs.pages import blocks
from tests.docs.test_docs import exposed

DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SETTINGS: Final = tomllib.loads((DEPLOY / "compose" / "kinstream.toml").read_text())
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The page and its port, wherever it is written down.
PORT: Final = 9108
#: Of the service: queries, probes and its page.
QUERIES: Final = ServeSettings().http_port
#: Templates and other files of the chart, without files/.
TEMPLATES: Final = [
    path for path in CHART.rglob("*") if path.is_file() and "files" not in path.relative_to(CHART).parts
]
#: Files whose words are compared; rules and dashboards have tests of their own.
FILES: Final = (
    *DEPLOY.glob("compose/**/*.*"),
    *(
        DEPLOY / name
        for name in ("compose.yaml", "Containerfile", "image/build_steps.sh", "image/entrypoint.py")
    ),
    *TEMPLATES,
    ROOT / "docs" / "deploying.md",
)
#: Settings of the chart that are not the code's defaults: in a pod others look at the page, and memory is limited.
OF_A_POD: Final = {
    ("worker", "http_host"): "0.0.0.0",
    ("worker", "http_port"): PORT,
    ("worker", "max_resident_bytes"): 250_000_000,
}

pytestmark = pytest.mark.timeout(1200)


def kinstream_services() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in COMPOSE["services"].items() if "kinstream" in one.get("image", "")}


# ---- versions ---------------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (PROJECT["version"], PROJECT["version"])
    assert {one["image"] for one in kinstream_services().values()} == {
        f"${{KINSTREAM_IMAGE:-kinstream:{PROJECT['version']}}}"
    }
    assert f"kinstream:{PROJECT['version']} ." in (DEPLOY / "Containerfile").read_text()


def test_kafka_is_the_one_that_the_tests_run_on() -> None:
    pom = (ROOT / "tests" / "kafka" / "pom.xml").read_text()
    (version,) = set(re.findall(r"<kafka\.version>(.+?)<", pom) or re.findall(r"<version>(4\.[\d.]+)<", pom))
    assert COMPOSE["services"]["kafka"]["image"] == f"docker.io/apache/kafka:{version}"


# ---- topics and groups --------------------------------------------------------------------------------------------


def test_the_topics_of_the_chart_are_the_catalogue() -> None:
    known = json.loads((CHART / "files" / "topics.json").read_text())["topics"]
    assert [topic["role"] for topic in known] == [topic.role for topic in CATALOGUE]


def topics_in(text: str) -> set[str]:
    return set(re.findall(r"\bkinstream\.(?!toml\b|recording\b|alerts\b|yml\b)[a-z-]+", text))


@pytest.mark.parametrize("name", VALUES)
def test_every_topic_of_the_chart_exists(name: str) -> None:
    # Rules and dashboards have tests of their own.
    documents = [one for one in rendered(name) if one["kind"] not in ("ConfigMap", "PrometheusRule")]
    found = topics_in(yaml.safe_dump_all(documents))
    assert found <= {topic.name() for topic in CATALOGUE}
    assert bool(found) is (name == "strimzi")


def test_every_topic_of_compose_exists() -> None:
    for file in (DEPLOY / "compose.yaml", *sorted((DEPLOY / "compose").rglob("*.*"))):
        assert topics_in(file.read_text()) <= {topic.name() for topic in CATALOGUE}, file


@pytest.mark.parametrize("name", VALUES)
def test_a_user_may_read_in_the_group_of_its_agent_and_in_no_other(name: str, tmp_path: Path) -> None:
    if not of_kind("KafkaUser", rendered(name)):
        assert name != "strimzi"
        return
    documents = rendered(name)
    told = tomllib.loads(settings_file(documents))
    assert told.pop("gate_key_file")
    settings = Settings.model_validate({**told, "gate_key": "k" * 48})
    groups = {}
    groupless = set()
    for deployment in of_kind("Deployment", documents):
        command, *words = container(pods(documents)[deployment])["args"]
        if command == "serve":
            groupless.add(deployment)
            continue
        agent, *rest = [word for word in words if word != "--create"]
        groups[deployment] = agent_spec(settings, agent, rest[0] if rest else None).group(7)
    for deployment, group in groups.items():
        acls = of_kind("KafkaUser", documents)[deployment]["spec"]["authorization"]["acls"]
        (prefix,) = (acl["resource"]["name"] for acl in acls if acl["resource"]["type"] == "group")
        assert [other for other, found in groups.items() if found.startswith(prefix)] == [deployment], group
    assert groupless == {"blue-kinstream-serve"}
    for deployment in groupless:
        acls = of_kind("KafkaUser", documents)[deployment]["spec"]["authorization"]["acls"]
        assert acls and {acl["resource"]["type"] for acl in acls} == {"topic"}
        assert {operation for acl in acls for operation in acl["operations"]} == {"Read"}


# ---- ports ------------------------------------------------------------------------------------------------------


def test_the_port_is_the_same_everywhere() -> None:
    assert f"\nEXPOSE {PORT} {QUERIES}\n" in (DEPLOY / "Containerfile").read_text()
    assert SETTINGS["serve"]["http_port"] == DEFAULTS["serve"]["settings"]["http_port"] == QUERIES
    assert SETTINGS["worker"]["http_port"] == PORT
    assert DEFAULTS["settings"]["worker"]["http_port"] == PORT
    for targets in (DEPLOY / "prometheus" / "targets", DEPLOY / "compose" / "targets"):
        (found,) = yaml.safe_load((targets / "workers.yml").read_text())
        ports = {target: int(target.rpartition(":")[2]) for target in found["targets"]}
        assert ports and all(
            port == (QUERIES if target.startswith("serve:") else PORT) for target, port in ports.items()
        )
    (example,) = (block for block in blocks(ROOT / "README.md", "toml"))
    assert tomllib.loads(example.text)["worker"]["http_port"] == PORT


# ---- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", SCHEMA["properties"]["settings"]["properties"])
def test_the_chart_takes_the_settings_of_a_section_within_the_same_limits(section: str) -> None:
    model = type(getattr(Settings(), section))
    # `kinstream up` alone, which the chart does not run, runs agents together.
    alone = {"together"} if section == "worker" else ()
    check_limits(model, SCHEMA["properties"]["settings"]["properties"][section]["properties"], without=alone)


def test_the_chart_takes_the_settings_of_the_service_within_the_same_limits() -> None:
    taken = SCHEMA["properties"]["serve"]["properties"]
    check_limits(ServeSettings, taken["settings"]["properties"], without={"spaces"})
    # Every reader of ConfigMaps would see a connection.
    spaces = taken["spaces"]["additionalProperties"]["properties"]
    check_limits(ServeSpaceSettings, spaces, without={"connection"})
    # The rest is what every entry may say over `workload`.
    assert taken.keys() - {"settings", "spaces"} == SCHEMA["$defs"]["workload"]["properties"].keys()


def test_the_chart_takes_the_settings_of_vectors_and_sinks_within_the_same_limits() -> None:
    taken = SCHEMA["properties"]["vectors"]["properties"]
    spaces = taken["spaces"]["additionalProperties"]
    check_limits(VectorsSettings, spaces["properties"])
    assert spaces["required"] == VectorsSettings.model_json_schema()["required"]
    assert taken.keys() - {"spaces"} == SCHEMA["$defs"]["workload"]["properties"].keys()
    taken = SCHEMA["properties"]["sinks"]["additionalProperties"]["properties"]
    check_limits(SinkSettings, taken["settings"]["properties"], without={"connection"})
    assert taken["settings"]["required"] == SinkSettings.model_json_schema()["required"]
    assert taken.keys() - {"settings"} == SCHEMA["$defs"]["workload"]["properties"].keys()


def test_the_chart_takes_a_source_with_the_names_of_the_code() -> None:
    taken = SCHEMA["properties"]["sources"]["additionalProperties"]["properties"]["settings"]
    assert taken["properties"].keys() < SourceSettings.model_fields.keys()
    assert taken["required"] == SourceSettings.model_json_schema()["required"]


def check_limits(model: Any, taken: dict[str, Any], without: Collection[str] = ()) -> None:
    """See that a schema's properties are the fields of a section, with the same limits."""
    every = model.model_json_schema()["properties"]
    wanted = {name: known for name, known in every.items() if name not in without}
    assert taken.keys() == wanted.keys()
    for name, known in wanted.items():
        some = [one for one in known.get("anyOf", ()) if one["type"] != "null"] or [known]
        facts = some[0] if len(some) == 1 else {"anyOf": some}
        limits = {
            key: value for key, value in facts.items() if key not in ("title", "default", "description")
        }
        if name == "http_port":
            # Any free port would be one that nobody asks.
            limits["minimum"] = 1
        assert taken[name] == limits, name


def test_the_defaults_of_the_chart_are_those_of_the_code() -> None:
    for section, values in DEFAULTS["settings"].items():
        known = getattr(Settings(), section).model_dump()
        for name, value in values.items():
            assert value == OF_A_POD.get((section, name), known[name]), f"{section}.{name}"
    assert DEFAULTS["serve"]["settings"] == {"http_host": "0.0.0.0", "http_port": QUERIES}
    known = Settings().checkpoints.model_dump()
    assert {name: DEFAULTS["checkpoints"][name] for name in known if name != "url"} == {
        name: value for name, value in known.items() if name != "url"
    }


def test_the_ways_to_log_in_are_those_of_the_settings() -> None:
    fields = KafkaSettings.model_fields
    taken = SCHEMA["properties"]["kafka"]["properties"]
    assert taken["securityProtocol"]["enum"] == list(get_args(fields["security_protocol"].annotation))
    assert taken["saslMechanism"]["enum"] == list(get_args(fields["sasl_mechanism"].annotation))
    assert DEFAULTS["kafka"]["securityProtocol"] == fields["security_protocol"].default
    assert DEFAULTS["kafka"]["saslMechanism"] == fields["sasl_mechanism"].default


def test_sections_of_agents_have_the_names_of_the_code() -> None:
    for section, model in (("builders", BuilderSettings), ("learners", LearnerSettings)):
        known = {field.alias or name for name, field in model.model_fields.items()}
        taken = SCHEMA["properties"][section]["additionalProperties"]["properties"]["settings"]
        assert taken["properties"].keys() == known
        assert set(taken["required"]) == {
            field.alias or name for name, field in model.model_fields.items() if field.is_required()
        }


@pytest.mark.parametrize("name", VALUES)
def test_every_variable_of_a_pod_is_a_setting(name: str) -> None:
    known = {f"KAFKA_{field.upper()}" for field in KafkaSettings.model_fields}
    for pod in pods(rendered(name)).values():
        assert environment(pod).keys() <= known


def test_every_variable_of_compose_is_a_setting() -> None:
    known = {f"KAFKA_{field.upper()}" for field in KafkaSettings.model_fields}
    for section in ("logs", "traces"):
        fields = type(getattr(Settings(), section)).model_fields
        known |= {f"KINSTREAM_{section}__{field}".upper() for field in fields}
    for service in kinstream_services().values():
        assert service["environment"].keys() <= known


# ---- metrics ------------------------------------------------------------------------------------------------------


def test_every_series_that_is_named_exists() -> None:
    for file in FILES:
        assert set(re.findall(r"\bkinstream_[a-z_]+", file.read_text())) <= exposed().keys(), file


def test_learners_hold_out_what_an_alert_compares() -> None:
    alerts = (CHART / "files" / "kinstream.alerts.yml").read_text()
    assert "kinstream_held_out_difference_low" in alerts
    learners = SETTINGS["learners"].values()
    assert all(
        learner.get("held_out", 0.02) > 0.0 for learner in learners if learner["kind"] not in UNLEARNED
    )


# ---- commands -----------------------------------------------------------------------------------------------------


def check_command(words: list[str]) -> None:
    """Have click read a command line as far as it can without running it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="kinstream")
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"kinstream has no command {name}"
        context, command = click.Context(found, parent=context, info_name=name), found
    command.make_context(command.name, words)


@pytest.mark.parametrize("name", VALUES)
def test_every_command_of_the_chart_exists(name: str) -> None:
    for pod in pods(rendered(name)).values():
        check_command(container(pod)["args"])
    check_command(["worker", "learner", "x", "--new-generation", "--from-start"])


def test_every_command_of_compose_exists() -> None:
    for service in kinstream_services().values():
        if "command" in service:
            check_command(service["command"])


def test_a_command_that_does_not_exist_is_found() -> None:
    for wrong in (["worker", "learner", "x", "--creat"], ["worker", "lerner", "x"]):
        with pytest.raises((click.UsageError, AssertionError)):
            check_command(wrong)


def test_kernels_are_compiled_by_a_command_that_exists() -> None:
    found = re.findall(r'bin/kinstream" (warm-up)', (DEPLOY / "image" / "build_steps.sh").read_text())
    assert found == ["warm-up", "warm-up"]
    check_command(shlex.split("warm-up opml one-pass"))
