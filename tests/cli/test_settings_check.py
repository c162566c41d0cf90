"""A misspelt or impossible setting ends every command at once, with status 2, in words that say what was meant."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.learners import registry as learners
from kinstream.processors import registry as builders
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import KafkaSettings, Settings, load

SOUND = """
[builders.one-pass]
kind = "one-pass"

[learners.opml]
kind = "opml"
from = ["one-pass"]
"""
#: Of the library that reads settings, which a person does not know.
FOREIGN = (
    "Input should",
    "Extra inputs",
    "Field required",
    "Value error",
    "pydantic",
    "validation error",
    "Traceback",
)


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def run(folder: Path, text: str, *arguments: str) -> Result:
    """A command with these settings; an error of ours is the result's exception, as `main` gets it."""
    file = folder / "kinstream.toml"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli, ["--config", str(file), *(arguments or ("models", "list"))])


def refusal(result: Result) -> str:
    error = result.exception
    assert isinstance(error, SettingsError), result.exception
    assert error.exit_status == 2
    told = str(error)
    assert not [word for word in FOREIGN if word in told], told
    return told


SINK = "[sinks.store]\nstore = 'qdrant'\ncollection = 'c'\n"


def test_a_sink_may_name_a_space_of_other_settings_where_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(f"{SINK}space = 'shop'")
    assert load(file).sinks["store"].space == "shop"
    file.write_text("[vectors.shop]\nlearner = 'opml'")
    assert load(file).vectors["shop"].learner == "opml"


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("[checkpoint]\nurl = 'x'", "[checkpoint]", "did you mean checkpoints?"),
        ("[kafka]\nbootstrap_server = 'x'", "[kafka] bootstrap_server", "did you mean bootstrap_servers?"),
        ("[topics]\npartition = 3", "[topics] partition", "did you mean partitions?"),
        ("[worker]\nhttp_prot = 3", "[worker] http_prot", "did you mean http_port?"),
        ("[checkpoints]\nintervall_seconds = 3", "[checkpoints] intervall_seconds", "interval_seconds?"),
        ("[metrics]\ntop_space = 3", "[metrics] top_space", "did you mean top_spaces?"),
        ("[builders.b]\nkind = 'one-pas'", "[builders.b] kind", "did you mean one-pass?"),
        ("[builders.b]\nkind = 'one-pass'\nsede = 3", "[builders.b] sede", "did you mean seed?"),
        ("[learners.a]\nkind = 'ompl'\nfrom = ['one-pass']", "[learners.a] kind", "did you mean opml?"),
        ("[learners.a]\nkind = 'opml'\nform = ['one-pass']", "[learners.a] form", "did you mean from?"),
        ("[learners.a]\nkind = 'opml'\nfrom = ['onepass']", "[learners.a] from", "did you mean one-pass?"),
        ("[learners.a]\nkind = 'opml'\nfrom = ['one-pass']\ngama = 1", "[learners.a] gama", "gamma?"),
        (
            "[learners.a]\nkind = 'opml'\nfrom = ['one-pass']\ngeneratio = 1",
            "[learners.a] generatio",
            "generation?",
        ),
        (
            "[learners.a]\nkind = 'portfolio'\nfrom = ['one-pass']\nfloor = 2",
            "[learners.a] kind",
            "the learner 'portfolio' was removed: use 'mixture' in a new generation",
        ),
        (
            "[serve]\nrebuild_seconds = 2",
            "[serve] rebuild_seconds",
            "it was removed: an index is built at most once a second; leave it out",
        ),
        (
            "[learners.a]\nkind = 'oahu'\nfrom = ['one-pass']\nhedge = 'exp'",
            "[learners.a] hedge",
            "was removed: it follows from `variant`; leave it out, in a new generation",
        ),
        (
            "[worker]\ngroup_protocol = 'classic'",
            "[worker] group_protocol",
            "was removed: workers join by Kafka's classic protocol",
        ),
        (
            "[serve.spaces.s]\nlearner = 'opml'\nindx = 'exact'",
            "[serve.spaces.s] indx",
            "did you mean index?",
        ),
        (
            "[serve.spaces.s]\nlearner = 'opml'\nindex = 'exakt'",
            "[serve.spaces.s] index",
            "did you mean exact?",
        ),
        ("[serve.spaces.s]\nlearner = 'ompl'", "[serve.spaces.s] learner", "did you mean opml?"),
        ("[serve]\nthread = 3", "[serve] thread", "did you mean threads?"),
        ("[logs]\nformat = 'jsn'", "[logs] format", "must be one of text, json"),
        (
            "[vectors.s]\nlearner = 'ompl'",
            "[vectors.s] learner",
            "no [learners.ompl]; there are opml; did you mean opml?",
        ),
        ("[vectors.s]\nlearner = 'x'", "[vectors.s] learner", "no [learners.x]; there are opml"),
        (
            f"[vectors.shop]\nlearner = 'opml'\n{SINK}space = 'shpo'",
            "[sinks.store] space",
            "no [vectors.shpo]; there are shop; did you mean shop?",
        ),
    ],
)
def test_what_is_misspelt_is_named_with_its_place_and_what_was_meant(
    text: str, place: str, hint: str, tmp_path: Path
) -> None:
    told = refusal(run(tmp_path, SOUND + text))
    assert f"kinstream.toml, {place}" in told and hint in told
    # A key that is misspelt may be missing as well.
    assert told.count("\n") == (2 if "form = " in text else 0), "one fault is told in one line"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[checkpoints]\nkeep = 'three'", "[checkpoints] keep: must be a whole number, not text"),
        ("[checkpoints]\nkeep = 1", "[checkpoints] keep: must be at least 2, not 1"),
        ("[checkpoints]\ninterval_seconds = 0", "[checkpoints] interval_seconds: must be above 0, not 0"),
        ("[worker]\nhttp_port = 70000", "[worker] http_port: must be at most 65535, not 70000"),
        ("[worker]\nstall_seconds = true", "[worker] stall_seconds: must be a number, not true"),
        ("[worker]\nhttp_host = 3", "[worker] http_host: must be text, not 3"),
        ("[spaces]\nauto_create = 'perhaps'", "[spaces] auto_create: must be true or false, not text"),
        ("[topics]\nprefix = 'A B'", "[topics] prefix: is made of a-z, 0-9 and -"),
        ("[kafka]\nsecurity_protocol = 'TLS'", "[kafka] security_protocol: must be one of PLAINTEXT, SSL"),
        ("[builders.'Not A Name']\nkind = 'one-pass'", '[builders."Not A Name"]: a name is made of'),
        ("[builders.b]\nseed = 3", "[builders.b] kind: is missing; it is one of adjacent-pairs, clicks"),
        ("[learners.a]\nkind = 'opml'", "[learners.a] from: is missing"),
        (
            "[learners.a]\nkind = 'opml'\nfrom = 'one-pass'",
            "[learners.a] from: must be a list of names, not text",
        ),
        ("[learners.a]\nkind = 'opml'\nfrom = []", "[learners.a] from: must name at least one"),
        ("[learners.a]\nkind = 'opml'\nfrom = [3]", "[learners.a] from: must be a list of names, not 3"),
        ("[learners.a]\nkind = 'opml'\nfrom = ['one-pass']\ngamma = -1", "[learners.a] gamma: must be"),
        ("[builders.b]\nkind = 'closure'\nemit = 'all'", "[builders.b] emit: must be one of"),
        (
            "[builders.p]\nkind = 'closure'\nemit = 'pairs'\n[learners.a]\nkind = 'opml'\nfrom = ['p']",
            "[learners.a]: (opml) learns from triplets",
        ),
        ("[serve.spaces.s]\nlearner = 'opml'\nindex = 'lazy'\noptions = {bitz = 3}", "[serve.spaces.s]: "),
        (
            "[serve.spaces.s]\nlearner = 'opml'\nindex = 'lazy'\noptions = {stale = 'second-level'}",
            "[serve.spaces.s]: stale was removed: lazy follows its monitored hyperplanes",
        ),
        ("[serve.spaces.s]\nlearner = 'opml'\nindex = 'linear'", "[serve.spaces.s] index: "),
        (
            "[traces]\nendpoint = 'me:secret@collector:4318'",
            "[traces] endpoint: is a URL that begins with http:// or https://, and has no spaces",
        ),
        (
            SINK.replace("'c'", "'my-docs'") + "space = 'shop'",
            "[sinks.store] collection: is made of a-z, 0-9 and _, begins with a letter or _, and has at most 31 "
            'characters; "my-docs" is not',
        ),
        (
            "[sources.w]\nkind = 'clicks'\ntopic = 'web clicks'",
            '[sources.w] topic: is made of a-z, A-Z, 0-9, ., _ and -; "web clicks" is not',
        ),
        (
            f"[sources.w]\nkind = 'clicks'\ntopic = '{'a' * 250}'",
            "[sources.w] topic: must have at most 249 characters",
        ),
        (f"{SINK}space = ''", "[sinks.store] space: must not be empty"),
        ("[serve.spaces.s]\nlearner = 'My'", "[serve.spaces.s] learner: is made of a-z, 0-9 and -"),
        (
            "[kafka]\nbootstrap_servers = 'a:1,b:99999'",
            "[kafka] bootstrap_servers: must be HOST:PORT, with a port from 1 to 65535 and an IPv6 address in "
            'brackets; "b:99999" is not',
        ),
        (
            "[kafka]\nbootstrap_servers = 'me:secret@b:1'",
            "[kafka] bootstrap_servers: must be HOST:PORT, without",
        ),
    ],
)
def test_what_is_out_of_range_is_said_in_words_of_the_settings(text: str, told: str, tmp_path: Path) -> None:
    found = refusal(run(tmp_path, SOUND + text))
    assert f"kinstream.toml, {told}" in found and "secret" not in found


def test_every_pattern_is_described_in_words() -> None:
    """An error repeats the description; a pattern is for programs."""
    found = []
    left: list[Any] = [Settings.model_json_schema(), KafkaSettings.model_json_schema()]
    while left:
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
        if isinstance(one, dict) and "pattern" in one:
            found.append((one["pattern"], one.get("description", "")))
    assert len(set(found)) == len(dict(found)) >= 5
    assert [pattern for pattern, words in found if not re.match(r"is (made of|a) \S", words)] == []


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = """
[kafka]
bootstrap_server = "b:1"
[checkpoint]
url = "x"
[checkpoints]
keep = 1
[builders.one-pass]
kind = "one-pass"
sede = 1
[learners.a]
kind = "opml"
from = ["one-pas"]
gama = 1
gamma = -1
scaler = "zscor"
[learners.b]
kind = "ompl"
from = ["one-pass"]
[serve.spaces.s]
learner = "a"
indx = "exact"
"""
    told = refusal(run(tmp_path, text))
    for place in (
        "[kafka] bootstrap_server",
        "[checkpoint]",
        "[checkpoints] keep",
        "[builders.one-pass] sede",
        "[learners.a] from",
        "[learners.a] gama",
        "[learners.a] gamma",
        "[learners.a] scaler",
        "[learners.b] kind",
        "[serve.spaces.s] indx",
    ):
        assert f"kinstream.toml, {place}: " in told, place
    assert told.startswith("the settings have 10 faults:\n  - ") and told.count("\n") == 10


@pytest.mark.parametrize(
    "command",
    [
        ("up",),
        ("worker", "builder", "one-pass", "--unsupervised"),
        ("worker", "metrics", "--unsupervised"),
        ("worker", "metrics", "--new-generation"),
        ("serve", "--unsupervised"),
        ("replay",),
        ("evaluate", "--from", "sklearn:wine"),
        ("topics", "create"),
        ("topics", "acls", "producer", "--principal", "User:x"),
        ("produce", "labelled", "sklearn:wine", "--space", "s"),
        ("spaces", "list"),
        ("spaces", "reset", "s"),
        ("models", "list"),
        ("closure", "explain", "s", "a", "b"),
        ("dead-letters", "list"),
        ("skip", "builder-one-pass", "--partition", "0", "--offset", "0"),
    ],
    ids=" ".join,
)
def test_every_command_refuses_before_it_begins(command: tuple[str, ...], tmp_path: Path) -> None:
    told = refusal(run(tmp_path, SOUND + "gama = 1", *command))
    assert told.endswith("[learners.opml] gama: opml has no such setting; did you mean gamma?")


def test_the_command_line_and_the_environment_are_named_where_they_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_set(*pairs: str) -> str:
        options = [word for pair in pairs for word in ("--set", pair)]
        return refusal(run(tmp_path, SOUND, *options, "models", "list"))

    assert with_set("checkpoints.keep=1") == "--set checkpoints.keep: must be at least 2, not 1"
    assert with_set("learners.opml.gama=1").startswith("--set learners.opml.gama: opml has no such setting")
    told = with_set("learners.ompl.gamma=1")
    assert "--set learners.ompl.gamma: [learners.ompl] kind: is missing" in told
    assert "did you mean opml?" in told
    assert with_set("checkpoints=x") == "--set checkpoints: must be a section, not text"
    assert with_set("learners.opml.kind.x=1").startswith(
        "--set learners.opml.kind.x: learners.opml.kind is no"
    )

    monkeypatch.setenv("KINSTREAM_CHECKPOINTS__KEEP", "one")
    assert refusal(run(tmp_path, SOUND)) == "KINSTREAM_CHECKPOINTS__KEEP: must be a whole number, not text"


SASL = "SASL_SSL needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"
NO_KEY = "[gate.SPACE], [randomise.SPACE] or record of a space needs a key of at least 16 characters"
ONE_MODEL = "set learner, for its newest model, or model"


@pytest.mark.parametrize(
    ("variables", "text", "told"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "", f"KAFKA_SECURITY_PROTOCOL: {SASL}"),
        ({"KINSTREAM_KAFKA": '{"security_protocol": "sasl_ssl"}'}, "", f"KINSTREAM_KAFKA: {SASL}"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KINSTREAM_KAFKA__SECURITY_PROTOCOL": "SSL"},
            "",
            f"KAFKA_SECURITY_PROTOCOL: {SASL}",
        ),
        (
            {},
            "[kafka]\nsecurity_protocol = 'SASL_SSL'",
            f"kinstream.toml, [kafka] security_protocol: {SASL}",
        ),
        ({}, "[kafka]\nssl_key_file = 'k'", "kinstream.toml, [kafka] ssl_key_file: KAFKA_SSL_KEY_FILE needs"),
        ({"KAFKA_SASL_PASSWORD_FILE": "/gone"}, "", "KAFKA_SASL_PASSWORD_FILE: /gone: No such file"),
        (
            {},
            "[kafka]\nssl_key_password_file = '/gone'",
            "kinstream.toml, [kafka] ssl_key_password_file: /gone",
        ),
        ({}, "gate_key_file = '/gone'", "kinstream.toml, gate_key_file: /gone: No such file"),
        ({"KINSTREAM_GATE_KEY": "short"}, "", f"KINSTREAM_GATE_KEY: {NO_KEY}"),
        ({}, "[gate.docs]", f"kinstream.toml, [gate]: {NO_KEY}"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "FOO"},
            "",
            'KAFKA_SECURITY_PROTOCOL: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not "FOO"',
        ),
        (
            {
                "KINSTREAM_SERVE__SPACES__DOCS__BACKEND": "s",
                "KINSTREAM_SERVE__SPACES__DOCS__COLLECTION": "c",
            },
            "",
            "KINSTREAM_SERVE__SPACES__DOCS__BACKEND, KINSTREAM_SERVE__SPACES__DOCS__COLLECTION: "
            f"[serve.spaces.docs]: {ONE_MODEL}",
        ),
        (
            {"KINSTREAM_SERVE__SPACES__DOCS__BACKEND": "s"},
            "[serve.spaces.docs]\ncollection = 'c'",
            "kinstream.toml, [serve.spaces.docs] with KINSTREAM_SERVE__SPACES__DOCS__BACKEND: " + ONE_MODEL,
        ),
        (
            {"KINSTREAM_LEARNERS__X__GAMMA": "1"},
            "",
            "KINSTREAM_LEARNERS__X__GAMMA: [learners.x] from: is missing",
        ),
    ],
)
def test_the_place_that_a_value_came_from_is_named(
    variables: dict[str, str], text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "b:1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = refusal(run(tmp_path, text + SOUND)).replace(f"{tmp_path}/", "").splitlines()
    assert [line for line in found if line.removeprefix("  - ").startswith(told)], found


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("KINSTREAM_CHECKPOINT__URL", "x", "did you mean KINSTREAM_CHECKPOINTS__URL?"),
        ("KINSTREAM_CHECKPOINTS_URL", "x", "did you mean KINSTREAM_CHECKPOINTS__URL?"),
        ("KINSTREAM_CHECKPOINTS__ULR", "x", "did you mean url?"),
        ("KINSTREAM_LEARNERS__OPML__GAMA", "1", "did you mean gamma?"),
        ("KINSTREAM_BUILDERS", "{", "must be JSON"),
        ("KAFKA_BOOTSTRAP_SERVER", "b:1", "did you mean KAFKA_BOOTSTRAP_SERVERS?"),
    ],
)
def test_variables_that_would_set_nothing_are_refused(
    variable: str, value: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    found = refusal(run(tmp_path, SOUND))
    assert found.startswith(f"{variable}: ") and told in found


def test_variables_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "KINSTREAM_SEARCH_PORT",  # as Kubernetes names those of a service
        "KINSTREAM_SEARCH_SERVICE_HOST",
        "KINSTREAM_DATA",
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
    ):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "b:1")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVER", "c:1")
    result = run(tmp_path, SOUND, "topics", "acls", "topics", "--principal", "User:x")
    assert result.exception is None, result.exception


def test_secrets_in_wrong_places_are_not_repeated(tmp_path: Path) -> None:
    secret = "hunter-two"
    text = (
        f"[kafka]\nsasl_pasword = '{secret}'\nsecurity_protocol = '{secret}'\n[checkpoint]\nurl = '{secret}'"
    )
    assert secret not in refusal(run(tmp_path, SOUND + text))


_SETTINGS = [
    (role, kind, name)
    for role, registry in (("learner", learners), ("builder", builders))
    for kind in registry.names()
    for name in registry.settings_of(kind)
]
_VALUES: tuple[Any, ...] = (
    "x", "", None, [], ["x"], [1], [[1]], {}, {"a": 1}, {"x": {"kind": 3}}, -1, 0, 1.5, math.nan, math.inf, True,
)  # fmt: skip


@pytest.mark.parametrize(("role", "kind", "name"), _SETTINGS)
def test_no_value_of_a_wrong_type_gets_past_the_checks_of_a_constructor(
    role: str, kind: str, name: str
) -> None:
    """Whatever stands in a settings file is taken or refused, and never ends in another error."""
    registry = learners if role == "learner" else builders
    for value in _VALUES:
        try:
            registry.create(kind, **{name: value})
        except SettingsError:
            continue


def test_a_package_that_is_missing_here_is_no_fault_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine runs that learner, with the same file."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "kinstream.streams.extras.find_spec",
        lambda name: None if name == "metric_learn" else found(name),
    )
    text = SOUND + "[learners.base]\nkind = 'lmnn'\nfrom = ['one-pass']\n"
    assert "KAFKA_BOOTSTRAP_SERVERS" in refusal(run(tmp_path, text))


@pytest.mark.long
def test_the_process_ends_with_status_2_and_nothing_but_the_faults(tmp_path: Path) -> None:
    gama = "kinstream.toml, [learners.opml] gama: opml has no such setting; did you mean gamma?"
    serves = "[serve]\nclients_file = 'missing'\n[serve.spaces.s]\nlearner = 'opml'\n"
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    # What comes after the first three is found by the process itself, under its supervisor.
    for text, command, told in (
        ("gama = 1\n", "up", gama),
        ("gama = 1\n", "worker learner opml", gama),
        ("gama = 1\n", "serve", gama),
        ("", "worker builder nosuch", "no [builders.nosuch] in the settings; there are: one-pass"),
        ("", "serve", 'nothing to serve: name a space, as [serve.spaces.NAME] learner = "NAME"'),
        (serves, "serve", "clients_file: missing: No such file or directory"),
    ):
        (tmp_path / "kinstream.toml").write_text(SOUND + text, encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, "-m", "kinstream.cli.main", *command.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"kinstream: {told}\n"), command
