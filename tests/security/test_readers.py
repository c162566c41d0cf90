"""Who may read what is secret, and what is no file: warnings, modes of checkpoints, pipes, kinds of locations."""

from __future__ import annotations

import logging
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinstream.producers.sources.schemas.registry import SchemaFiles
from kinstream.search.service.clients import Tokens
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.configuration.section import secret_in
from kinstream.streams.errors import SettingsError
from kinstream.streams.operations.models import Refused, data_of
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import CheckpointSettings, KafkaSettings, Settings, load


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user of the machine can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def _settings_file(path: Path) -> object:
    path.write_text("[kafka]\nbootstrap_servers = 'b:1'\nsasl_password = 'a password'\n")
    return load(path)


def _store_file(path: Path) -> object:
    path.write_text("[checkpoints]\nurl = 's3://user:a-password@bucket/x'\n")
    return load(path)


def _secret(path: Path) -> object:
    path.write_text("a password\n")
    return secret_in(str(path))


def _tokens(path: Path) -> object:
    path.write_text("shop a-token-of-sixteen-characters\n")
    return Tokens(str(path))


def _key(path: Path) -> object:
    path.write_text("a key\n")
    return KafkaSettings(ssl_key_file=str(path), ssl_certificate_file=str(path))


READS: dict[str, Callable[[Path], object]] = {
    "settings with a password": _settings_file,
    "settings with a URL": _store_file,
    "secret": _secret,
    "tokens": _tokens,
    "key": _key,
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_secret_that_others_can_read_is_told_once(
    read: Callable[[Path], object], shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(mode: int, name: str) -> list[str]:
        file = shared / name
        file.touch()
        file.chmod(mode)
        with caplog.at_level(logging.WARNING, "kinstream"):
            caplog.clear()
            read(file)
            read(file)
        return [line.getMessage() for line in caplog.records if str(file) in line.getMessage()]

    (line,) = told(0o644, "open")
    assert "other users of this machine can read it" in line and "a password" not in line
    assert told(0o640, "of-the-group") == []
    shared.chmod(0o700)
    assert told(0o644, "in-a-closed-folder") == []


CONNECTIONS = {
    "./store": False,
    "http://qdrant:6333": False,
    "postgresql://reader@db:5432/shop": False,
    "host=db dbname=shop": False,
    "https://:KEY@qdrant:6333": True,
    "postgresql://reader:PASSWORD@db/shop": True,
    "postgresql://db/shop?user=reader&password=PASSWORD": True,
    "host=db password = PASSWORD": True,
}


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_connection_is_a_secret_if_it_has_a_password(
    connection: str, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = "model = 'it.npz'\nbackend = 'qdrant'\ncollection = 'docs'"
    text = f"[serve.spaces.docs]\n{space}\nconnection = '{connection}'"
    (shared / "kinstream.toml").write_text(text)
    (shared / "kinstream.toml").chmod(0o644)
    with caplog.at_level(logging.WARNING, "kinstream"):
        load(shared / "kinstream.toml")
    assert bool(caplog.records) is CONNECTIONS[connection]


def test_settings_without_a_secret_are_for_everybody(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    (shared / "kinstream.toml").write_text("[topics]\nprefix = 'shop'\n")
    (shared / "kinstream.toml").chmod(0o644)
    with caplog.at_level(logging.WARNING, "kinstream"):
        load(shared / "kinstream.toml")
    assert not caplog.records


def test_no_other_user_reads_a_checkpoint(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = open_files(str(tmp_path / "store"), "learner-opml", "1")
        files.write([("topic-0/spaces/a", b"state")])
        files.create("birth.json", b"{}")
    finally:
        os.umask(before)
    made = sorted((tmp_path / "store").rglob("*"))
    assert len(made) == 6
    for path in (tmp_path / "store", *made):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o750 if path.is_dir() else 0o640), path


@pytest.mark.parametrize("kind", ["settings", "secret", "schema", "clients"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened: dict[str, Callable[[], object]] = {
        "settings": lambda: load(pipe),
        "secret": lambda: secret_in(str(pipe)),
        "schema": lambda: SchemaFiles({"5": str(pipe)}),
        "clients": lambda: Tokens(str(pipe)),
    }
    with pytest.raises((SettingsError, ValueError), match="not a regular file"):
        opened[kind]()


@pytest.mark.parametrize(
    "name", ["ssl_ca_file", "ssl_certificate_file", "ssl_key_file", "sasl_oauthbearer_ca_file"]
)
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device", "socket"])
def test_a_client_of_kafka_is_given_no_pipe(name: str, kind: str, tmp_path: Path) -> None:
    """The libraries for TLS open what they are given, and wait."""
    place = tmp_path / "place"
    other = tmp_path / "other"
    for file in ("ca", "certificate", "key"):
        (tmp_path / file).write_text("text")
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "socket":
            listening.bind(str(place))
        elif kind == "device":
            place = Path(os.devnull)
        else:
            os.mkfifo(other if kind.startswith("link") else place)
            if kind.startswith("link"):
                place.symlink_to(other)
        files = {"ssl_certificate_file": str(tmp_path / "certificate"), name: str(place)}
        with pytest.raises(ValueError, match=f"(?s){name}.*{re.escape(str(place))}: not a regular file"):
            KafkaSettings(**files)  # type: ignore[arg-type]


def test_a_folder_of_authorities_and_a_file_that_comes_later_are_no_fault(tmp_path: Path) -> None:
    KafkaSettings(ssl_ca_file=str(tmp_path), ssl_certificate_file=str(tmp_path / "later"))


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b" \n", "is empty"), (b"\t", "is empty"), (b"\xef\xbb\xbf\n", "is empty"), (b"a\0b", "a zero byte")],
)
def test_a_secret_is_text(content: bytes, fault: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ValueError, match=fault):
        secret_in(str(tmp_path / "secret"))


def test_the_mark_of_utf_8_is_no_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfa password\r\n")
    assert secret_in(str(tmp_path / "secret")) == "a password"
    (tmp_path / "tokens").write_bytes(b"\xef\xbb\xbfshop a-token-of-sixteen-characters\r\n")
    assert Tokens(str(tmp_path / "tokens")).client("Bearer a-token-of-sixteen-characters") == "shop"


def test_a_refused_folder_stays_open_nowhere(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ValueError, match="Is a directory"):
            secret_in(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "location",
    ["data:,abc", "data:application/octet-stream;base64,AAAA", "data://,abc", "http://h/x", "ftp://h/x"],
)
def test_a_model_is_in_a_checkpoint_store(location: str, tmp_path: Path) -> None:
    version = ModelVersion(
        space="s",
        learner="opml",
        generation=1,
        epoch=0,
        step=1,
        topic="kinstream.constraints",
        partition=0,
        offset=1,
        algorithm="opml/1",
        location=location,
        sha256="0" * 64,
        time_ms=0,
    )
    with pytest.raises(Refused, match="only checkpoint stores are read"):
        data_of(version, Settings(checkpoints=CheckpointSettings(url=str(tmp_path))))
