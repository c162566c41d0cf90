"""The settings of the service, its secrets, and the filters of stores that speak SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from kinstream.cli.shared.context import checked
from kinstream.search.service.service import Service
from kinstream.search.stores.base import BadFilter
from kinstream.search.stores.filters import Condition, conditions
from kinstream.search.stores.postgres import sessionless
from kinstream.streams.errors import SettingsError
from kinstream.streams.secrets import hide
from kinstream.streams.settings import load

SPACE = """
[serve.spaces.docs]
learner = "adapter"
backend = "pgvector"
collection = "docs"
"""
URL = "postgresql://reader:s3cret-of-the-gateway@127.0.0.1:1/x"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "kinstream.toml"
    found.write_text(SPACE)
    return found


def test_the_connection_comes_from_the_environment_and_is_never_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSTREAM_SERVE__SPACES__DOCS__CONNECTION", URL)
    settings = load(file)
    assert settings.serve.spaces["docs"].connect_by() == URL
    assert "s3cret" not in repr(settings) and "s3cret" not in settings.model_dump_json()
    assert "s3cret" not in hide("password s3cret-of-the-gateway is wrong")


def test_the_connection_comes_from_a_file_that_only_the_gateway_reads(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    file.write_text(f'{SPACE}connection_file = "{secret}"\n')
    section = load(file, {"kafka.bootstrap_servers": "127.0.0.1:1"}).serve.spaces["docs"]
    with pytest.raises(SettingsError, match="secret: No such file"):
        section.connect_by()
    with pytest.raises(SettingsError, match=r"serve\.spaces\.docs: connection_file: "):
        Service(load(file))
    secret.write_text(URL.replace("s3cret-of", "0ther-s3cret-of") + "\n")
    assert section.connect_by().endswith("@127.0.0.1:1/x")
    assert "0ther" not in hide("password 0ther-s3cret-of-the-gateway is wrong")


@pytest.mark.parametrize("name", ["connection", "options.connection"])
def test_the_command_line_takes_no_connection(file: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="every user of this machine can read a command line") as error:
        load(file, {f"serve.spaces.docs.{name}": "host=db password=s3cret"})
    assert "KINSTREAM_SERVE__SPACES__DOCS__" in str(error.value) and "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('distance = "cosin"', "must be one of inner-product, cosine"),
        ('model = "x.npz"', "set learner"),
        ('connection = "a"\nconnection_file = "b"', "set one of connection and connection_file"),
        ("connection = 5", "must be text"),
        ('table = "docs"', "there is no such setting"),
    ],
)
def test_faults_are_named_with_their_place(file: Path, line: str, text: str) -> None:
    file.write_text(SPACE + line + "\n")
    with pytest.raises(SettingsError, match=text) as error:
        checked(str(file))
    assert "[serve.spaces.docs]" in str(error.value)


def test_a_learner_that_is_meant_is_suggested(file: Path) -> None:
    builder = (
        '[builders.one-pass]\nkind = "one-pass"\n[learners.adapters]\nkind = "oasis"\nfrom = ["one-pass"]\n'
    )
    file.write_text(SPACE + builder)
    with pytest.raises(SettingsError, match=r"no \[learners\.adapter\]; did you mean adapters\?"):
        checked(str(file))


COLUMNS = ("lang", "year")


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (None, []),
        ({}, []),
        ({"lang": "en"}, [Condition("lang", "=", "en")]),
        ({"year": [1, 2]}, [Condition("year", "= any", [1, 2])]),
        ({"year": {"gte": 1, "lt": 2.5}}, [Condition("year", ">=", 1), Condition("year", "<", 2.5)]),
        ({"lang": True, "year": 3}, [Condition("lang", "=", True), Condition("year", "=", 3)]),
    ],
)
def test_a_filter_is_conditions(where: Any, wanted: list[Condition]) -> None:
    assert conditions(where, COLUMNS) == wanted


@pytest.mark.parametrize(
    "where",
    [
        [],
        "lang",
        {"id": 1},
        {"lang": None},
        {"lang": []},
        {"lang": ["a", 1]},
        {"lang": [["a"]]},
        {"lang": ["a"] * 1_001},
        {"lang": {}},
        {"lang": {"like": "%"}},
        {"lang": {"gte": None}},
        {"lang": "a\x00"},
        {"year": 1 << 63},
    ],
)
def test_what_is_no_filter_is_refused(where: Any) -> None:
    with pytest.raises(BadFilter):
        conditions(where, COLUMNS)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("-c%20hnsw.ef_search%3D100", {"hnsw.ef_search": "100"}),
        ("-chnsw.ef_search%3D100%20--work-mem%3D64MB", {"hnsw.ef_search": "100", "work_mem": "64MB"}),
        ("-c%20search_path%3Da%2C%5C%20b%5C%5C", {"search_path": "a, b\\"}),
        ("", {}),
    ],
)
def test_startup_options_become_settings(
    options: str, wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGOPTIONS", raising=False)
    rest, found = sessionless(f"postgresql://me:secret-word@db/shop?options={options}")
    assert found == wanted
    assert not conninfo_to_dict(rest).get("options")


@pytest.mark.parametrize(
    "options", ["-d", "-d%202", "hnsw.ef_search%3D100", "-c%20x", "-c%20x%3D1%20-B9", "%zz"]
)
def test_startup_options_that_are_no_settings_are_refused_without_the_password(options: str) -> None:
    with pytest.raises(SettingsError) as error:
        sessionless(f"postgresql://me:secret-word@db/shop?options={options}")
    assert "secret-word" not in str(error.value)
