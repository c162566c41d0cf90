"""The page's server: who may ask, what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kinstream.cli.demo.search.page import LARGEST, Page


class Asked:
    """Answers of the page, and what they were asked."""

    def __init__(self) -> None:
        self.clicks: list[tuple[str, list[int], int]] = []
        self.queries: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"phase": "Learning"}

    def search(self, text: str) -> dict[str, Any]:
        self.queries.append(text)
        if not text:
            raise ValueError("no words")
        return {"text": text}

    def click(self, text: str, rows: list[int], clicked: int) -> dict[str, Any]:
        self.clicks.append((text, rows, clicked))
        return {"people": 3}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def page(asked: Asked) -> Iterator[Page]:
    page = Page(0, asked.state, asked.search, asked.click)
    yield page
    page.close()


def ask(
    page: Page, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=20)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, names)
    response = connection.getresponse()
    found = response.read()
    connection.close()
    return response.status, response, found


CLICK = json.dumps({"query": "a query", "shown": [4, 2], "clicked": 2}).encode()
JSON = {"Content_Type": "application/json"}


def test_the_page_and_its_script_come_with_a_policy_that_lets_nothing_else_in(page: Page) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript")):
        status, response, body = ask(page, path)
        assert status == 200 and len(body) > 1_000
        assert response.headers["Content-Type"].startswith(kind)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    # The policy would not let scripts of the page's own text run.
    assert b"<script src" in ask(page, "/")[2] and b"onclick" not in ask(page, "/")[2]


def test_it_answers_its_state_searches_and_clicks(page: Page, asked: Asked) -> None:
    assert json.loads(ask(page, "/state")[2]) == {"phase": "Learning"}
    assert json.loads(ask(page, "/search?q=a%20b%26c")[2]) == {"text": "a b&c"}
    status, _, body = ask(page, "/click", CLICK, **JSON)
    assert (status, json.loads(body)) == (200, {"people": 3})
    assert asked.clicks == [("a query", [4, 2], 2)]


def test_an_answer_that_cannot_be_given_says_why(page: Page) -> None:
    status, _, body = ask(page, "/search")
    assert (status, json.loads(body)) == (400, {"error": "no words"})
    assert ask(page, "/etc/passwd")[0] == ask(page, "/../page.html")[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_pages_of_other_sites_are_refused(page: Page, asked: Asked, headers: dict[str, str]) -> None:
    for path, body in (("/state", None), ("/click", CLICK)):
        status, _, found = ask(page, path, body, **JSON, **headers)
        assert status == 403, found
    assert asked.clicks == []


def test_its_own_origin_may_click(page: Page, asked: Asked) -> None:
    port = page.url.rsplit(":", 1)[1]
    for host in ("127.0.0.1", "localhost"):
        given = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
        assert ask(page, "/click", CLICK, **JSON, **given)[0] == 200
    assert len(asked.clicks) == 2


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (CLICK, {"Content_Type": "text/plain"}),
        (b"{", JSON),
        (b"[]", JSON),
        (b"{}", JSON),
        (b"[" * 9_000, JSON),
        (json.dumps({"query": "a", "shown": "x", "clicked": 1}).encode(), JSON),
        (json.dumps({"query": "a", "shown": [1], "clicked": None}).encode(), JSON),
        (b'{"query": "a", "shown": [1e999], "clicked": 1}', JSON),
        (b'{"query": "a", "shown": [1], "clicked": "\xff"}', JSON),
        (b" " * (LARGEST + 1), JSON),
    ],
)
def test_what_is_no_click_is_refused_and_the_page_goes_on(
    page: Page, asked: Asked, body: bytes, headers: dict[str, str]
) -> None:
    try:
        status, _, found = ask(page, "/click", body, **headers)
    except (BrokenPipeError, ConnectionResetError):
        # It does not read what is too large.
        assert len(body) > LARGEST
    else:
        assert status == 400, found
    assert asked.clicks == []
    assert ask(page, "/state")[0] == 200


def test_a_long_query_is_cut(page: Page, asked: Asked) -> None:
    assert ask(page, "/search?q=" + 5_000 * "a")[0] == 200
    assert asked.queries == [2_000 * "a"]


def test_a_port_that_is_taken_says_so(page: Page, asked: Asked) -> None:
    with pytest.raises(OSError, match="in use"):
        Page(int(page.url.rsplit(":", 1)[1]), asked.state, asked.search, asked.click)
