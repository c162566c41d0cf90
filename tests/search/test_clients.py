"""Clients with tokens, their limits, and the log of their requests, over HTTP."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.search.service.clients import Rates, Tokens, clients_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.processes.json_lines import JsonFormatter
from kinstream.streams.settings import ServeSettings
from tests.docs.pages import ROOT
from tests.search.fakes import Clock
from tests.search.index_service import SHOP, items
from tests.search.index_service import running as agent_running
from tests.search.index_service import served as agent_served
from tests.search.store_service import Memory, running, section, served

FIRST, SECOND = "a-token-of-the-web-shop", "0123456789abcdef"
X = np.eye(3, dtype=np.float32)
ASKED: dict[str, Any] = {"space": "docs", "vectors": [[1.0, 0.0, 0.0]], "k": 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clients"
    path.write_text(f"# who may ask\nweb {FIRST}\n\nreports\t{SECOND} # of the night\n")
    return path


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def gateway(**limits: Any) -> Any:
    return running({"docs": section()}, create=lambda *_: Memory(["a", "b", "c"], X), **limits)


def test_only_clients_of_the_file_are_answered_and_probes_are_open(file: Path) -> None:
    with gateway(clients_file=str(file)) as made, served(made) as url, httpx.Client(base_url=url) as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert client.get(path).status_code == 200
        for headers in (
            {},
            bearer("nobody"),
            bearer(FIRST[:-1]),
            bearer(f"{FIRST} x"),
            {"authorization": FIRST},
        ):
            told = client.post("/search", json=ASKED, headers=headers)
            assert (told.status_code, told.json()["reason"]) == (401, "unauthorized")
            assert told.headers["www-authenticate"] == "Bearer"
            assert FIRST not in told.text
        for path in ("/spaces", "/openapi.json", "/nowhere"):
            assert client.get(path).status_code == 401
        for token in (FIRST, SECOND):
            assert client.post("/search", json=ASKED, headers=bearer(token)).status_code == 200
        twice = [("authorization", f"Bearer {FIRST}"), ("authorization", f"Bearer {SECOND}")]
        assert client.post("/search", json=ASKED, headers=twice).status_code == 401
        counted = 'request_duration_seconds_count{route="other",status="401"} '
        assert counted in client.get("/metrics").text


def test_the_query_agent_has_the_same_clients(file: Path) -> None:
    with agent_running(**SHOP, clients_file=str(file)) as agent:
        agent.events.append(items("shop", ["a", "b", "c"], X))
        agent.settle()
        # `served` takes another port and the same limits.
        with agent_served(agent) as url:
            body = {"vectors": [[1.0, 0.0, 0.0]], "k": 1}
            assert httpx.post(f"{url}/search", json=body).status_code == 401
            told = httpx.post(f"{url}/search", json=body, headers=bearer(SECOND))
            assert told.json()["results"][0]["neighbours"][0]["id"] == "a"


def test_a_token_is_exchanged_while_the_service_runs(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(str(file), clock)
    file.write_text(f"web {FIRST}\nweb another-token-0123456\n")
    assert tokens.client("Bearer another-token-0123456") is None  # the file is looked at once a second
    clock.now += 1.5
    assert tokens.client("Bearer another-token-0123456") == "web" == tokens.client(f"bearer {FIRST}")
    assert tokens.client(f"Bearer {SECOND}") is None


def test_a_file_that_becomes_invalid_changes_nothing_and_is_reported_once(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    tokens = Tokens(str(file), clock)
    for content in ("web short\n", "web short\n", None):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        clock.now += 1.5
        assert tokens.client(f"Bearer {FIRST}") == "web"
    assert [line.levelname for line in caplog.records] == ["ERROR", "ERROR"]
    file.write_text("web new-token-0123456789\n")
    clock.now += 1.5
    assert tokens.client("Bearer new-token-0123456789") == "web"
    assert tokens.client(f"Bearer {FIRST}") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "names no client"),
        (b"# nobody\n", "names no client"),
        (b"web\n", "line 1: write a name"),
        (b"\nweb short\n", "line 2: write a name, a space and a token of at least 16 characters"),
        (b"web one-token-0123456 more\n", "line 1: write a name"),
        (b"a same-token-0123456\nb same-token-0123456\n", "line 2: another client has the same token"),
        (b"web \xff\xfe\n", "not text"),
        (b"x" * 1_000_001, "larger than 1000000 bytes"),
        (None, "No such file"),
    ],
)
def test_an_invalid_file_is_refused_at_the_start_with_its_place(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "clients"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=why) as found:
        clients_of(ServeSettings(clients_file=os.fspath(path)))
    assert "token-0123456" not in str(found.value)


def test_without_limits_every_address_may_ask() -> None:
    assert clients_of(ServeSettings()) is None
    with gateway() as made, served(made) as url:
        assert httpx.post(f"{url}/search", json=ASKED).status_code == 200


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60), st.sampled_from([0.5, 1.0, 4.0]))
def test_no_client_gets_more_than_its_rate_and_one_second_in_reserve(
    pauses: list[float], rate: float
) -> None:
    clock = Clock()
    rates, taken = Rates(rate, clock), []
    for pause in pauses:
        clock.now += pause
        wait = rates.wait("a")
        if wait == 0.0:
            taken.append(clock.now)
        else:
            assert 0.0 < wait <= 1.0 / rate + 1e-9
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            most = max(1.0, rate) + rate * (taken[last] - taken[first])
            assert last - first + 1 <= most + 1e-6


def test_who_waits_as_told_is_served_and_others_are_not_held_up() -> None:
    clock = Clock()
    rates = Rates(2.0, clock)
    assert [rates.wait("a") == 0.0 for _ in range(3)] == [True, True, False]
    assert rates.wait("b") == 0.0
    clock.now += rates.wait("a")
    assert rates.wait("a") == 0.0


def test_a_client_that_asks_too_often_gets_429_and_the_others_do_not(file: Path) -> None:
    limits = {"clients_file": str(file), "client_rate": 2.0}
    with gateway(**limits) as made, served(made) as url, httpx.Client(base_url=url) as client:
        told = [client.post("/search", json=ASKED, headers=bearer(FIRST)) for _ in range(8)]
        refused = [one for one in told if one.status_code == 429]
        assert told[0].status_code == 200 and refused
        assert refused[0].json() == {"reason": "rate-limit", "detail": "web asks too often", "place": None}
        assert refused[0].headers["retry-after"] == "1"
        assert client.post("/search", json=ASKED, headers=bearer(SECOND)).status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_request_counts_by_what_it_asks_for(file: Path) -> None:
    """Neither one large request after another, nor all at once, is more than its client's share."""
    limits = {"clients_file": str(file), "client_rate": 5.0}
    large = {"space": "docs", "vectors": [[1.0, 0.0, 0.0]] * 256, "k": 1_000}
    with gateway(**limits) as made, served(made) as url, httpx.Client(base_url=url) as client:

        def asked(_: int) -> int:
            return httpx.post(f"{url}/search", json=large, headers=bearer(FIRST), timeout=60).status_code

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(asked, range(4)))
        assert sorted(told) == [200, 429, 429, 429]
        # 256,000 neighbours are as many as 256 requests, at 5 a second.
        told = client.post("/search", json=ASKED, headers=bearer(FIRST))  # type: ignore[assignment]
        assert (told.status_code, told.json()["reason"]) == (429, "rate-limit")  # type: ignore[attr-defined]
        assert 30 < int(told.headers["retry-after"]) <= 52  # type: ignore[attr-defined]
        assert client.post("/search", json=ASKED, headers=bearer(SECOND)).status_code == 200
        # What is refused is not counted by its size.
        for wrong in ({"k": 1_001}, {"vectors": [[1.0]] * 256}):
            assert client.post("/search", json=large | wrong, headers=bearer(SECOND)).status_code == 422
        assert client.post("/search", json=ASKED, headers=bearer(SECOND)).status_code == 200


def test_a_request_to_the_query_agent_counts_by_what_it_asks_for() -> None:
    bodies: dict[str, Any] = {
        "/search": {"vectors": [[1.0, 0.0, 0.0]] * 256, "k": 1_000},
        "/similar": {"items": ["a"] * 256, "k": 1_000},
        "/similar/a": {"k": 1_000},
    }
    for path, body in bodies.items():
        with agent_running(**SHOP, client_rate=2.0) as agent:
            agent.events.append(items("shop", ["a", "b", "c"], X))
            agent.settle()
            with agent_served(agent) as url:
                told = [httpx.post(f"{url}{path}", json=body, timeout=60) for _ in range(2)]
                assert [one.status_code for one in told] == [200, 429], told[1].text


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 300)), max_size=60), st.floats(0.5, 50.0))
def test_what_a_client_gets_is_its_rate_and_one_request(asked: list[tuple[float, int]], rate: float) -> None:
    clock = Clock()
    rates, taken = Rates(rate, clock), 0.0
    for pause, more in asked:
        clock.now += pause
        if rates.wait("a") == 0.0:
            taken += 1.0
            if rates.spend("a", more) == 0.0:
                taken += more
        assert taken <= max(1.0, rate) + rate * clock.now + 300


def test_every_request_is_logged_with_client_space_and_status(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"clients_file": str(file), "audit": True}
    with caplog.at_level(logging.INFO, "kinstream.audit"):
        with gateway(**limits) as made, served(made) as url, httpx.Client(base_url=url) as client:
            client.post("/search", json=ASKED, headers=bearer(FIRST))
            client.post("/search", json=ASKED | {"space": "other"}, headers=bearer(SECOND))
            client.post("/search%0Aclient=web", json=ASKED)
            client.get("/readyz")
        lines = [one for one in caplog.records if one.name == "kinstream.audit"]
    texts = [one.getMessage().rpartition(" ms=")[0] for one in lines]
    assert texts == [
        "client=web method=POST path='/search' space='docs' status=200",
        "client=reports method=POST path='/search' space=- status=404",
        "client=- method=POST path='/search\\nclient=web' space=- status=401",
    ]
    assert json.loads(JsonFormatter().format(lines[0]))["message"].startswith("client=web")


def test_the_recipe_lets_its_client_in_and_nobody_else(tmp_path: Path) -> None:
    """The settings, the file and the request of the page about security, with another path and port."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    found = page[page.index("## Clients of the service") : page.index("## The checkpoint store")]
    toml, lines, command = (
        re.findall(rf"^```{language}\n(.*?)^```", found, re.S | re.M)[0]
        for language in ("toml", "text", "sh")
    )
    limits = tomllib.loads(toml)["serve"]
    path = tmp_path / Path(limits["clients_file"]).name
    path.write_text(lines)
    limits |= {"clients_file": str(path), "http_host": "127.0.0.1"}
    with gateway(**limits) as made, served(made) as url:
        asked = command.replace("localhost:8088", url.removeprefix("http://"))
        assert asked != command
        told = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
        assert [len(one["neighbours"]) for one in json.loads(told.stdout)["results"]] == [3]
        token = re.findall(r"Bearer (\w+)", asked)[0]
        refused = subprocess.run(
            ["bash", "-c", asked.replace(token, token[::-1])],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert json.loads(refused.stdout)["reason"] == "unauthorized"
