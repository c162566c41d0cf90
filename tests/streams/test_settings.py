"""Settings come from file, environment and command line in rising order, and secrets are never told."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.conn import collect_hosts

from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.clients import confluent, confluent_producer, faust_broker
from kinstream.streams.settings import KafkaSettings, load

FILE = """
[kafka]
bootstrap_servers = "file:1"
[checkpoints]
url = "from-file"
keep = 5
[builders.one-pass]
kind = "one-pass"
negatives = "official"
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.5
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    path = tmp_path / "kinstream.toml"
    path.write_text(FILE)
    return path


def test_the_order_is_file_environment_command_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(file).kafka.bootstrap_servers == "file:1"
    assert load(file).checkpoints.url == "from-file"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "environment:1")
    monkeypatch.setenv("KINSTREAM_CHECKPOINTS__URL", "from-environment")
    settings = load(file)
    assert (settings.kafka.bootstrap_servers, settings.checkpoints.url) == (
        "environment:1",
        "from-environment",
    )
    assert settings.checkpoints.keep == 5
    settings = load(file, {"kafka.bootstrap_servers": "line:1", "checkpoints.url": "from-line"})
    assert (settings.kafka.bootstrap_servers, settings.checkpoints.url) == ("line:1", "from-line")


def test_learners_carry_their_hyper_parameters(file: Path) -> None:
    settings = load(file)
    assert settings.learners["opml"].arguments() == {"gamma": 0.5}
    assert settings.learners["opml"].follows == ("one-pass",)
    assert settings.builders["one-pass"].arguments() == {"negatives": "official"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[checkpoint]\nurl = 'x'", "checkpoint"),
        ("[checkpoints]\nkeep = 0", r"\[checkpoints\] keep"),
        ("[learners.a]\nkind = 'opml'\nfrom = ['nobody']", "nobody"),
        ("[learners.a]\nkind = 'opml'", "learners.a"),
        ("[builders.'Not A Name']\nkind = 'one-pass'", "Not A Name"),
        ("not toml", "kinstream.toml"),
    ],
)
def test_a_wrong_setting_is_named(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "kinstream.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=told):
        load(path)


def test_a_missing_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        load(tmp_path / "nowhere.toml")


SECRET = "hunter-two"


def test_secrets_are_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", SECRET)
    monkeypatch.setenv("KAFKA_SSL_KEY_PASSWORD", SECRET)
    settings = load(overrides={"kafka.bootstrap_servers": "b:1"})
    assert SECRET not in repr(settings) + str(settings) + repr(settings.model_dump())
    monkeypatch.setenv("KAFKA_SECURITY_PROTOCOL", "sasl_ssl")
    with pytest.raises(SettingsError) as error:
        load()
    assert "KAFKA_SASL_USERNAME" in str(error.value) and SECRET not in str(error.value)


def test_both_clients_get_the_same_credentials() -> None:
    kafka = KafkaSettings(
        bootstrap_servers="b:1,c:2",
        security_protocol="SASL_PLAINTEXT",
        sasl_username="u",
        sasl_password=SECRET,  # type: ignore[arg-type]
    )
    config = confluent(kafka)
    assert (config["sasl.username"], config["sasl.password"], config["sasl.mechanism"]) == (
        "u",
        SECRET,
        "SCRAM-SHA-512",
    )
    broker = faust_broker(kafka)
    assert broker["broker"] == "kinstream://b:1;kinstream://c:2"
    credentials = broker["broker_credentials"]
    assert (credentials.username, credentials.password, credentials.mechanism.value) == (
        "u",
        SECRET,
        "SCRAM-SHA-512",
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [("b", "b:9092"), (" b:1, [::1]:2,c-1.d_e", "b:1,[::1]:2,c-1.d_e:9092"), ("[fe80::1]", "[fe80::1]:9092")],
)
def test_an_address_without_a_port_has_the_port_of_the_clients(written: str, meant: str) -> None:
    kafka = KafkaSettings(bootstrap_servers=written)
    assert kafka.bootstrap_servers == confluent(kafka)["bootstrap.servers"] == meant
    # What aiokafka reads in both.
    assert collect_hosts(written.rstrip(","), randomize=False) == collect_hosts(meant, randomize=False)


@pytest.mark.parametrize(
    "written",
    ["b:0", "b:65536", "b:", "b:x", ":1", "::1", "[::1", "[b]:1", "a b", "a;b", "SSL://b:1", "b/c", "b:1:2"],
)
def test_an_address_that_a_client_would_take_for_another_one_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        KafkaSettings(bootstrap_servers=written)


def test_the_producer_is_gapless_and_hashes_as_java_does() -> None:
    config = confluent_producer(KafkaSettings(bootstrap_servers="b:1"))
    assert config["enable.idempotence"] and config["enable.gapless.guarantee"] and config["acks"] == "all"
    assert config["message.timeout.ms"] == 0 and config["partitioner"] == "murmur2_random"


def test_without_brokers_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(SettingsError, match="KAFKA_BOOTSTRAP_SERVERS"):
        confluent(KafkaSettings())
