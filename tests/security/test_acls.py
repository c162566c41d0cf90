"""The ACLs of each role: complete, documented, and printed as commands that kafka-acls.sh takes."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.cli.shared.agents import agent_spec
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.rights.access import lacking
from kinstream.streams.kafka.rights.acls import ROLES, Grant, as_json, commands, role
from kinstream.streams.settings import KafkaSettings, load
from kinstream.streams.topics import CATALOGUE, FEEDBACK
from tests.docs.pages import ROOT, blocks, rows
from tests.kafka.secured_broker import SecuredBroker
from tests.security.users import acting_as, by_password, read_line, until

PAGE = ROOT / "docs" / "security.md"
TOML = """
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
[sources.shop]
topic = "shop.relations"
kind = "relations"
space = "shop"
fields = { left = "a", right = "b" }
"""


def test_every_topic_is_read_and_written_by_somebody() -> None:
    grants = [
        grant
        for one in ROLES.values()
        for grant in one.grants(sources=[FEEDBACK.name()])
        if grant.resource == "topic"
    ]
    for operation in ("READ", "WRITE"):
        assert {grant.name for grant in grants if operation in grant.operations} == {
            t.name() for t in CATALOGUE
        }


def test_no_role_may_delete_alter_or_anything_on_the_cluster() -> None:
    for one in ROLES.values():
        for grant in one.grants("other", sources=["other.clicks"]):
            assert grant.resource in ("topic", "group") and grant.name
            assert set(grant.operations) <= {"READ", "WRITE", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"}
            assert grant.resource == "group" or grant.name.startswith("other.")
            assert "WRITE" not in grant.operations or not grant.prefixed


def test_the_groups_are_those_that_agents_join(tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_text(TOML)
    for name, agent in (("source", "shop"), ("builder", "one-pass"), ("learner", "opml"), ("metrics", None)):
        spec = agent_spec(load(path), name, agent)
        for chosen in {agent, None}:
            (group,) = (g for g in role(name).grants(agent=chosen) if g.resource == "group")
            assert group.prefixed and all(spec.group(n).startswith(group.name) for n in (1, 12))
        read = [
            g
            for g in role(name).grants(sources=["shop.relations"])
            if g.operations == ("READ",) and g.resource == "topic"
        ]
        inputs = {g.name for g in read if not g.optional}
        assert inputs == {spec.input_topic(load(path))}


def test_the_page_has_every_role_and_every_grant() -> None:
    found = {tuple(row[:2] + row[3:]): row[2].split(", ") for row in rows(PAGE, "What each role needs")}
    assert len(found) == len(list(rows(PAGE, "What each role needs"))), "a grant stands there twice"
    wanted: dict[tuple[str, ...], list[str]] = {}
    for name, one in ROLES.items():
        for grant in one.grants(agent="NAME" if one.agent else None):
            resource = f"`{grant.name}{'*' if grant.prefixed else ''}`"
            why = f"{grant.why}{' (optional)' if grant.optional else ''}"
            wanted.setdefault((resource, ", ".join(grant.operations), why), []).append(f"`{name}`")
            assert grant.name.startswith("kinstream-") == (grant.resource == "group")
    assert found == wanted
    told = [tuple(cell.strip("`") for cell in row) for row in rows(PAGE, "Roles")]
    assert told == [(name, one.runs) for name, one in ROLES.items()]


def test_the_help_names_every_role() -> None:
    found = re.search(r"ROLEis(.*)or(.*);NAMEis", "".join(_printed("--help").split()))
    assert found and [*found[1].split(","), found[2]] == list(ROLES)


def _printed(*arguments: str, config: Path | None = None) -> str:
    options = [] if config is None else ["--config", str(config)]
    result = CliRunner().invoke(cli, [*options, "topics", "acls", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def _examples() -> dict[str, list[str]]:
    """The words after `kinstream topics acls` in the examples of the page, by role."""
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    found = [shlex.split(line)[3:] for line in lines if line.startswith("kinstream topics acls ")]
    return {words[0]: words for words in found}


def test_the_examples_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_text(TOML)
    printed = {name: _printed(*words, config=path) for name, words in _examples().items()}
    for name, agent, who in (
        ("learner", "opml", "User:learner"),
        ("builder", "one-pass", "User:CN=builder,O=Example"),
    ):
        lines = printed.pop(name).splitlines()
        wanted = [replace(grant, why="", optional=False) for grant in role(name).grants(agent=agent)]
        assert list(map(read_line, lines)) == [(who, grant) for grant in wanted]
        assert all("--command-config admin.properties" in line for line in lines)
    assert json.loads(printed.pop("metrics")) == as_json(role("metrics").grants())
    assert not printed


def test_the_commands_say_what_the_grants_say() -> None:
    words = ["--bootstrap-server", "h:1,i:2", "--command-config", "my admin.properties"]
    for one in ROLES.values():
        grants = one.grants("a-b", "x" if one.agent else None, ())
        lines = commands(grants, "User:CN=me,O=It's", "h:1,i:2", "my admin.properties")
        for line, grant in zip(lines, grants, strict=True):
            principal, read = read_line(line)
            assert principal == "User:CN=me,O=It's"
            assert read == Grant(grant.resource, grant.name, grant.operations, "", prefixed=grant.prefixed)
            assert shlex.split(line)[1:5] == words


def test_the_prefix_of_the_settings_is_used(tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_text('[topics]\nprefix = "staging"\n[kafka]\nbootstrap_servers = "b:9"\n')
    printed = _printed("producer", "--principal", "User:p", config=path)
    assert "--topic staging.events" in printed and "--bootstrap-server b:9" in printed


def test_strimzi_gets_what_a_kafka_user_has() -> None:
    found = json.loads(_printed("learner", "opml", "--principal", "User:l", "--json"))
    assert found == as_json(role("learner").grants(agent="opml"))
    (group,) = (entry for entry in found if entry["resource"]["type"] == "group")
    assert group == {
        "resource": {"type": "group", "name": "kinstream-learner-opml-v", "patternType": "prefix"},
        "operations": ["Read"],
        "host": "*",
    }
    assert {entry["resource"]["patternType"] for entry in found} == {"literal", "prefix"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nobody", "--principal", "User:x"], "no role has the name 'nobody'; there are: topics, producer"),
        (["producer", "name", "--principal", "User:x"], "producer is one role"),
        (["producer", "--principal", "x"], "such as User:learner"),
        (["producer", "--principal", "User:"], "such as User:learner"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, ["topics", "acls", *arguments])
    assert isinstance(result.exception, SettingsError) and told in str(result.exception)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("name", ["topics", "learner"])
def test_kafka_acls_takes_the_commands(
    name: str, secured_kafka: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, prefix = f"tool-{name}", f"tool-{name}"
    secured_kafka.add_user(user, "pa55-of-the-tool")
    secured_kafka.create_topic(f"{prefix}.events")
    for topic in ("constraints", "outcomes", "models", "updates", "dead-letters"):
        secured_kafka.create_topic(f"{prefix}.{topic}")
    path = tmp_path / "kinstream.toml"
    path.write_text(
        f'[topics]\nprefix = "{prefix}"\n[kafka]\nbootstrap_servers = "{secured_kafka.bootstrap}"\n'
    )
    login = ["--command-config", str(secured_kafka.admin_properties())]
    words = _examples().get(name, [name, "--principal", f"User:{name}"])
    asked = [word.replace(f"User:{name}", f"User:{user}") for word in words]
    for line in _printed(*asked, *login, config=path).splitlines():
        assert secured_kafka.kafka_acls(*shlex.split(line)[1:])
    with acting_as(monkeypatch, by_password(secured_kafka, user, "pa55-of-the-tool")):
        cluster = Cluster(KafkaSettings())
        grants = role(name).grants(prefix)
        until(lambda: not lacking(cluster, grants, ["kinstream-learner-opml-v1"]), "everything is allowed")
        if name == "topics":
            assert cluster.config_of(f"{prefix}.events")["cleanup.policy"] == "delete"
        cluster.close()
