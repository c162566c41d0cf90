"""The client in Python: what it asks, what it says of lists, and the errors that answers become."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kinstream import SearchClient
from kinstream.search.client.client import FeedbackRefused, FoundList, ServiceBusy, ServiceError
from kinstream.search.client.content import content_of, metadata_of, score_of
from kinstream.streams.errors import SettingsError
from tests.search.test_feedback_service import Q, Recording, _late, items_of, recording


@pytest.fixture
def service() -> Iterator[Recording]:
    with recording() as found:
        yield found


def client_of(service: Recording, **more: Any) -> SearchClient:
    return SearchClient(str(service.client.base_url), "docs", **more)


def test_it_finds_what_the_service_finds_and_its_feedback_is_written(service: Recording) -> None:
    client = client_of(service)
    found = client.search(Q[0], k=4, user="u-1", session="s-1")
    assert found.ids == list(items_of(service.ask(Q[:1])[0]))
    found.feedback(found.ids[1], "cited", value=0.5, weight=3.0, key="a")
    found.feedback(found.ids[0])
    found.outcome(0.25)
    found.feedback(found.ids[0], retract=True)
    written = [
        (one.list_id, one.item, one.action, one.weight, one.key, one.retract)
        for one in service.brokers.feedback
    ]
    assert written == [
        (found.list_id, found.ids[1], "cited", 1.5, "a", False),
        (found.list_id, found.ids[0], None, 1.0, "", False),
        (found.list_id, None, None, 0.25, "", False),
        (found.list_id, found.ids[0], None, 1.0, "", True),
    ]
    (shown,) = [one for one in service.brokers.shown if one.list_id == found.list_id]
    assert (shown.user, shown.session) == ("u-1", "s-1")


def test_feedback_that_is_refused_names_the_reason(service: Recording) -> None:
    client = client_of(service)
    found = client.search(Q[0], k=4)
    strange = next(name for name in service.ask(Q[1:2], k=60)[0]["neighbours"] if name["id"] not in found.ids)
    for list_id, item, reason in (
        ("x", "a", "forged-list"),
        (_late(), "item-0", "late-list"),
        (found.list_id, strange["id"], "unknown-item"),
    ):
        with pytest.raises(FeedbackRefused) as refused:
            client.feedback(list_id, item, "cited")
        assert (refused.value.reason, refused.value.status) == (reason, 422)
        assert refused.value.place == "feedback[0]" and str(refused.value).startswith(f"{reason}: ")
    assert not service.brokers.feedback
    with pytest.raises(FeedbackRefused, match="not recorded"):
        FoundList(None, [], client).feedback("a", "cited")


def test_a_wrong_request_says_where_and_is_not_repeated(service: Recording) -> None:
    for asked, reason in (({"vector": [1.0]}, "wrong-dimension"), ({"vector": Q[0], "k": 0}, "invalid")):
        with pytest.raises(ServiceError) as error:
            client_of(service).search(**asked)
        assert not isinstance(error.value, ServiceBusy) and error.value.reason == reason
        assert error.value.retry_seconds is None and error.value.place
    with pytest.raises(ServiceError, match="unknown-space"):
        SearchClient(str(service.client.base_url), "strange").search(Q[0])


def test_a_client_has_a_token_and_a_rate(tmp_path: Path) -> None:
    (tmp_path / "clients").write_text("web 4f0c9d8e2b7a6153\n")
    with recording(clients_file=str(tmp_path / "clients"), client_rate=2.0) as service:
        with pytest.raises(ServiceError, match="unauthorized"):
            client_of(service).search(Q[0])
        client = client_of(service, token="4f0c9d8e2b7a6153")
        assert "4f0c9d8e2b7a6153" not in repr(client) + repr(client.search(Q[0]))
        with pytest.raises(ServiceBusy) as busy:
            for _ in range(20):
                client.search(Q[0])
    assert (busy.value.status, busy.value.reason) == (429, "rate-limit")
    assert busy.value.retry_seconds and busy.value.retry_seconds >= 1.0


def test_feedback_is_sent_until_the_brokers_have_it(
    service: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = client_of(service).search(Q[0], k=4)
    service.wait_for(1)
    service.brokers.error = "Local: Message timed out"
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            service.brokers.error = None

    monkeypatch.setattr("time.sleep", sleep)
    found.feedback(found.ids[0], "cited")
    assert waits == [1.0, 1.0] and len(service.brokers.feedback) == 1
    service.brokers.error = "Local: Message timed out"
    waits.append(0.0)
    with pytest.raises(ServiceBusy, match="send it again") as busy:
        found.feedback(found.ids[1], "cited")
    assert (busy.value.status, busy.value.reason, len(waits)) == (503, "brokers", 2 + 1 + 4)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that answers everything alike: a proxy, or something that is no service."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (503, b"<html>bad gateway", ServiceBusy, "status-503"),
        (502, b"<html>bad gateway", ServiceError, "status-502"),
        (500, b'{"reason": "fault", "detail": "x", "place": null}', ServiceError, "fault"),
        (
            404,
            b'{"reason": "unknown-item", "detail": "x", "place": null}',
            ServiceError,
            "unknown-item",
        ),
        (200, b"<html>welcome", ServiceBusy, "no-answer"),
    ],
)
def test_what_is_between_and_what_is_no_service_gives_an_error_as_well(
    status: int, body: bytes, kind: type[ServiceError], reason: str
) -> None:
    with answering(status, body) as url, pytest.raises(ServiceError) as error:
        SearchClient(url).search([1.0])
    assert type(error.value) is kind and (error.value.reason, error.value.status) == (
        reason,
        status if status != 200 else 0,
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_follows_no_redirect(status: int) -> None:
    # urllib would send the token along, with GET.
    with (
        answering(200, b"{}") as elsewhere,
        answering(status, b"", Location=f"{elsewhere}/search") as url,
        pytest.raises(ServiceError, match="redirects are not followed") as error,
    ):
        SearchClient(url, token="4f0c9d8e2b7a6153").search(Q[0])
    assert error.value.status == status


def test_a_service_that_is_away_is_named() -> None:
    with pytest.raises(ServiceBusy, match=r"http://127.0.0.1:9 does not answer"):
        SearchClient("http://127.0.0.1:9/", seconds=2.0).search([1.0])


def test_a_retriever_takes_its_text_from_a_column_or_by_id() -> None:
    one = {"id": "a", "similarity": 0.25, "fields": {"body": "text of a", "year": 2020}}
    assert content_of(one, "body") == "text of a" and metadata_of(one, "body") == {"year": 2020}
    assert content_of(one, {"a": "other"}) == "other" and metadata_of(one, {})["body"] == "text of a"
    with pytest.raises(SettingsError, match=r"without the column 'text'.*body, year"):
        content_of(one, "text")
    with pytest.raises(SettingsError, match="no text of the item 'a'"):
        content_of(one, {})


def test_more_is_better_in_every_score() -> None:
    assert score_of({"value": 2.0, "similarity": 1.0}) == 2.0
    assert score_of({"value": None, "similarity": 0.5}) == 0.5
    assert score_of({"squared_distance": 4.0}) == -4.0
    assert score_of({"similarity": None}) is None
