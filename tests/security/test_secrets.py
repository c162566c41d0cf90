"""Secrets are taken from the environment or from files, and never told: not in errors, logs, help or arguments."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.cli.shared.context import parse_overrides
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.configuration.section import MAX_SECRET_BYTES
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.secrets import HidingFormatter, hide, remember, without_secret
from kinstream.streams.settings import MAX_FILE_BYTES, KafkaSettings, load

MARK = "s3cret-m4rker-of-the-tests"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_brokers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


# ---- from a file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_password_is_read_from_the_file_that_is_named(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = tmp_path / "password"
    mounted.write_bytes(f" {MARK} ".encode() + ending.encode())
    login = "[kafka]\nbootstrap_servers = 'b:1'\nsecurity_protocol = 'SASL_PLAINTEXT'\nsasl_username = 'u'\n"
    (tmp_path / "kinstream.toml").write_text(login)
    monkeypatch.setenv("KAFKA_SASL_PASSWORD_FILE", str(mounted))
    monkeypatch.setenv("KAFKA_SSL_KEY_PASSWORD_FILE", str(mounted))
    kafka = load().kafka
    assert kafka.sasl_password.get_secret_value() == kafka.ssl_key_password.get_secret_value() == f" {MARK} "
    assert confluent(kafka)["sasl.password"] == f" {MARK} "
    # A restart reads it again: so a secret is changed.
    mounted.write_text("another")
    assert load().kafka.sasl_password.get_secret_value() == "another"
    assert MARK not in repr(kafka) + str(kafka) + kafka.model_dump_json()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe" + MARK.encode(), "not text"),
        (MARK.encode() * MAX_SECRET_BYTES, f"larger than {MAX_SECRET_BYTES} bytes"),
    ],
)
def test_a_password_file_that_cannot_be_used_is_named_without_its_content(
    content: bytes | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    monkeypatch.setenv("KAFKA_SASL_PASSWORD_FILE", str(tmp_path / "password"))
    with pytest.raises(SettingsError, match=told) as error:
        load()
    assert str(tmp_path / "password") in str(error.value) and MARK not in str(error.value)


def test_a_password_and_a_file_for_it_are_one_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(MARK)
    monkeypatch.setenv("KAFKA_SASL_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", MARK)
    with pytest.raises(SettingsError, match="set one of sasl_password and sasl_password_file") as error:
        load()
    assert MARK not in str(error.value)


# ---- not from the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        (f"kafka.sasl_password={MARK}", "KAFKA_SASL_PASSWORD_FILE"),
        (f"kafka.ssl_key_password={MARK}", "KAFKA_SSL_KEY_PASSWORD_FILE"),
        (f'kafka={{"sasl_password": "{MARK}"}}', "KAFKA_SASL_PASSWORD_FILE"),
        (f"checkpoints.url=s3://key:{MARK}@bucket/x", "KINSTREAM_CHECKPOINTS__URL"),
        (f"checkpoints.url=https://host/x?sig={MARK}", "KINSTREAM_CHECKPOINTS__URL"),
        (f"kafka.sasl_password:{MARK}", "--set kafka.sasl_password: write NAME=VALUE"),
        (f"kafka.sasl_password {MARK}", "--set kafka.sasl_password: write NAME=VALUE"),
    ],
)
def test_the_command_line_takes_no_secret(pair: str, told: str) -> None:
    with pytest.raises(SettingsError, match="--set") as error:
        load(None, parse_overrides((pair,)))
    assert told in str(error.value) and MARK not in str(error.value)


# ---- errors ----------------------------------------------------------------------------------------------------------

BROKEN = [
    f'[kafka]\nsasl_password = "{MARK}',
    f"[kafka]\nsasl_password = {MARK}",
    f'[kafka]\nsasl_password = ["{MARK}"]',
    f'[kafka]\nsasl_password = "{MARK}"\nsasl_password = "{MARK}"',
    f'[kafka]\nsasl_pasword = "{MARK}"',
    f'[kafka]\nsasl_password = "{MARK}"\nsecurity_protocol = "SASL_SSL"',
    f'[kafka]\nsasl_password = "{MARK}"\nsecurity_protocol = "{MARK}"',
    f'[kafka]\nsasl_password = {{ text = "{MARK}" }}',
    f'kafka = "{MARK}"',
    f'[checkpoints]\nurl = "s3://k:{MARK}@b"\nkeep = 0',
    f'[checkpoints]\nurl = ["s3://k:{MARK}@b"]',
    f'[learners.a]\nkind = "opml"\nfrom = "{MARK}"',
]


@pytest.mark.parametrize("text", BROKEN)
def test_an_error_in_the_settings_tells_no_value(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(path)
    told = f"{error.value} {error.value!r} {error.value.__cause__!r}"
    if "from" not in text:  # what a learner follows is no secret
        assert MARK not in told
    assert str(path) in str(error.value)


def test_settings_that_are_no_settings_are_not_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(SettingsError, match=f"larger than {MAX_FILE_BYTES} bytes"):
        load(path)
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(SettingsError, match=str(path)):
        load(path)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"s3://key:{MARK}@bucket/a/b", "s3://***@bucket/a/b"),
        (f"sftp://u:a@{MARK}@host/x", "sftp://***@host/x"),
        (f"https://h/x?sv=1&sig={MARK}&se=2", "https://h/x?sv=1&sig=***&se=2"),
        (f"https://h/x?X-Amz-Signature={MARK}", "https://h/x?X-Amz-Signature=***"),
        (
            f"abfs://c@a.dfs.core.windows.net/x?account_key={MARK}",
            "abfs://***@a.dfs.core.windows.net/x?account_key=***",
        ),
        (
            "file:///var/lib/a@b/spaces/digits@000.safetensors",
            "file:///var/lib/a@b/spaces/digits@000.safetensors",
        ),
        ("s3://bucket/spaces/digits@0001-ab.safetensors", "s3://bucket/spaces/digits@0001-ab.safetensors"),
        ("/var/lib/kinstream/a@b", "/var/lib/kinstream/a@b"),
    ],
)
def test_urls_are_shown_without_credentials(url: str, shown: str) -> None:
    assert without_secret(url) == shown


def test_a_store_that_cannot_be_opened_is_named_without_credentials() -> None:
    with pytest.raises(CheckpointError, match="unknown-kind") as error:
        open_files(f"unknown-kind://key:{MARK}@bucket/x")
    assert MARK not in str(error.value)


# ---- logs and terminals ----------------------------------------------------------------------------------------------


def test_a_log_line_hides_secrets_also_in_a_traceback() -> None:
    remember(MARK)
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(HidingFormatter("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError(f"connect s3://k:other-secret@b with {MARK}")
    except ValueError:
        log.exception("it failed with %s", MARK)
    assert "it failed with ***" in out.getvalue() and "Traceback" in out.getvalue()
    assert MARK not in out.getvalue() and "other-secret" not in out.getvalue()
    assert hide("nothing to hide") == "nothing to hide"


def _environment(tmp_path: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_USERNAME": "somebody",
        "KAFKA_SASL_PASSWORD": MARK,
        "KINSTREAM_CHECKPOINTS__URL": f"unknown-kind://key:{MARK}@bucket/x",
        "PYTHONPATH": str(ROOT),
    }


COMMANDS = [
    ["models", "list", "--checkpoints", "--json"],
    ["spaces", "list"],
    ["topics", "acls", "producer", "--principal", "User:x", "--json"],
    ["topics", "acls", "learner", "--principal", "User:x"],
    ["--set", "worker.startup_seconds=0.5", "topics", "create"],
    ["--set", "worker.startup_seconds=0.5", "worker", "metrics", "--unsupervised"],
    ["--set", "worker.startup_seconds=wrong", "up"],
]


@pytest.mark.long
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_tells_a_secret_whatever_becomes_of_it(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kinstream.cli.main", "--log-level", "DEBUG", *words],
        env=_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout or done.stderr
    assert MARK not in done.stdout + done.stderr
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and MARK.encode() in p.read_bytes()]


def test_help_shows_no_value_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in _environment(tmp_path).items():
        monkeypatch.setenv(name, value)

    def pages(command: click.Command, words: list[str]) -> list[str]:
        told = [CliRunner().invoke(cli, [*words, "--help"]).output]
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                told += pages(inner, [*words, name])
        return told

    found = pages(cli, [])
    assert len(found) > 30 and all("Usage:" in page for page in found)
    assert MARK not in "".join(found)


def test_settings_print_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in _environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    settings = load()
    assert settings.kafka.sasl_password.get_secret_value() == MARK
    for text in (repr(settings), str(settings), settings.kafka.model_dump_json(), repr(KafkaSettings())):
        assert MARK not in text
    assert json.loads(settings.kafka.model_dump_json())["sasl_password"] == "**********"
