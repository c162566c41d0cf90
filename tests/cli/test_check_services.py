"""`kinstream check` on services over HTTP, and on stores: rights, clients, and what answers at their addresses."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.cli.system import service_checks
from kinstream.cli.system.check_result import Finding
from kinstream.cli.system.service_checks import lost_findings, service_findings, unserved_findings
from kinstream.cli.system.store_checks import checkpoint_store, vector_stores
from kinstream.streams.errors import AccessDenied
from kinstream.streams.settings import Settings
from tests.kafka.broker import reserve_port

#: Asked for nothing: the rights are looked up by a function that the tests replace.
CLUSTER: Any = None


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """A program that answers every request so, on the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def settings_of(port: int, **more: Any) -> Settings:
    section = {"spaces": {"shop": {"learner": "opml"}}, "http_port": port} | more
    return Settings(serve=section)  # type: ignore[arg-type]


def found(settings: Settings) -> dict[str, Finding]:
    return {one.about: one for one in service_findings(settings, CLUSTER)}


@pytest.fixture(autouse=True)
def roles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(service_checks, "check_role", lambda cluster, settings, role: asked.append(role))
    return asked


@pytest.mark.parametrize(
    ("status", "answer", "good", "text"),
    [
        (200, {"ready": True, "waiting_for": []}, True, "ready at"),
        (503, {"ready": False, "waiting_for": ["models of 'shop'"]}, False, "waits for models of 'shop'"),
        (200, {"status": "ok"}, False, "another program answers"),
        (404, "no JSON object", False, "another program answers"),
    ],
)
def test_what_answers_at_the_address_of_the_service_is_reported(
    status: int, answer: Any, good: bool, text: str
) -> None:
    with answering(status, json.dumps(answer).encode()) as port:
        one = found(settings_of(port))["serve here"]
    assert one.good is good
    assert text in one.text
    assert ("serve.http_port" in one.mend) is text.startswith("another")


def test_a_service_that_does_not_run_is_no_fault() -> None:
    with reserve_port() as reserved:
        one = found(settings_of(reserved.getsockname()[1]))
    assert one["serve here"].good and "nothing answers" in one["serve here"].text
    assert one["serve"].good and "kinstream serve" in one["serve"].text
    assert found(settings_of(0))["serve here"].good


def test_what_is_not_json_is_another_program() -> None:
    for body in (b"", b"\xff", b"[1]", b'{"waiting_for": 3}'):
        with answering(503, body) as port:
            assert not found(settings_of(port))["serve here"].good


def test_services_without_a_space_are_not_checked(roles: list[str]) -> None:
    assert not list(service_findings(Settings(), CLUSTER)) and not list(vector_stores(Settings()))
    assert not roles


def test_missing_permissions_and_a_bad_file_of_clients_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, roles: list[str]
) -> None:
    assert found(settings_of(0))["serve"].good and roles == ["serve"]
    one = found(settings_of(0, clients_file=str(tmp_path / "none")))["serve"]
    assert not one.good and "clients_file" in one.text

    def denied(*_: Any) -> None:
        raise AccessDenied("User:me lacks READ on topic kinstream.models")

    monkeypatch.setattr(service_checks, "check_role", denied)
    assert "lacks READ" in found(settings_of(0))["serve"].text


def test_a_store_that_is_away_is_refused_without_its_password() -> None:
    with reserve_port() as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        space = {
            "model": "model.npz",
            "backend": "pgvector",
            "collection": "docs",
            "connection": f"postgresql://me:hidden-word@{address}/shop",
        }
        section = {"spaces": {"docs": space}, "request_seconds": 2.0, "http_port": 0}
        settings = Settings(serve=section)  # type: ignore[arg-type]
        (one,) = vector_stores(settings)
    assert one.about == "store of docs" and not one.good
    assert "hidden-word" not in one.line()
    # A service of exported models alone needs no rights.
    assert found(settings)["serve"].good


@pytest.mark.parametrize("store", ["pgvector", "qdrant"])
def test_the_store_of_a_sink_is_asked_too(store: str) -> None:
    with reserve_port() as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        scheme = {"pgvector": "postgresql", "qdrant": "http"}[store]
        sink = {
            "space": "s",
            "store": store,
            "collection": "docs",
            "connection": f"{scheme}://me:hidden-word@{address}",
        }
        (one,) = vector_stores(Settings(sinks={"shop": sink}))  # type: ignore[dict-item]
    assert one.about == "store of sink shop" and not one.good
    assert "hidden-word" not in one.line()


# ---- the checkpoint store -------------------------------------------------------------------------------------------


def stored_at(url: str) -> Finding:
    return checkpoint_store(Settings(checkpoints={"url": url}))  # type: ignore[arg-type]


def test_a_checkpoint_folder_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    one = stored_at(f"file://{tmp_path}")
    assert one.good and "can be written and read" in one.text
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    one = stored_at(str(tmp_path / "a" / "b"))
    assert one.good and "does not exist yet" in one.text
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    one = stored_at(str(tmp_path / "file" / "b"))
    assert not one.good and "cannot be written" in one.text and "checkpoints.url" in one.mend


def test_a_kind_of_store_whose_package_is_missing_is_not_a_matter_of_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # None in this table stands for a package that is not installed.
    monkeypatch.setitem(sys.modules, "s3fs", None)
    one = stored_at("s3://bucket/folder")
    assert not one.good and "s3fs" in one.text and "install" in one.mend


def test_gates_and_randomised_lists_of_spaces_that_no_service_serves_are_faults() -> None:
    lists: dict[str, Any] = {"gate": {"shop": {}, "shpo": {}}, "randomise": {"docs": {"kind": "swaps"}}}
    sixteen: dict[str, Any] = {"gate_key": "0123456789abcdef"}
    served: dict[str, Any] = {"serve": {"spaces": {"shop": {"learner": "opml"}}}}
    one = {one.about: one for one in unserved_findings(Settings(**lists, **sixteen, **served))}
    assert set(one) == {"gate.shpo", "randomise.docs"}
    assert "did you mean shop?" in one["gate.shpo"].text
    assert "[randomise.docs]" in one["randomise.docs"].mend
    assert not any(finding.good for finding in one.values())
    # The service may have settings of its own.
    assert not list(unserved_findings(Settings(**lists, **sixteen)))


def test_a_signal_that_a_ranking_weighs_and_its_space_does_not_have_is_a_fault(tmp_path: Path) -> None:
    def found(own: dict[str, Any], **space: Any) -> list[Finding]:
        served = {"backend": "pgvector", "collection": "docs", "text": "words", "learner": "own", **space}
        sections: dict[str, Any] = {
            "builders": {"clicks": {"kind": "clicks"}},
            "learners": {"own": {"from": ["clicks"], **own}},
            "serve": {"spaces": {"docs": served}},
        }
        return list(lost_findings(Settings(**sections)))

    start = {"similarity": 0.5, "bm25": 0.5, "age": 0.0}
    (one,) = found({"kind": "ranking", "start": start})
    assert (one.about, one.good) == ("serve.spaces.docs", False)
    assert "weighs 'bm25', which the space does not have" in one.text and "'text'" in one.mend
    (one,) = found({"kind": "ranking", "start": {"text": 0.5, "bm25": 0.5}})
    assert "add a column of that name to serve.spaces.docs.signals" in one.mend
    assert not found({"kind": "ranking", "start": start}, signals=["bm25"])
    assert not found({"kind": "ranking", "start": {"similarity": 0.5, "text": 0.5}})
    assert not found({"kind": "ranking"}) and not found({"kind": "adapter"})
    # A file of a model brings its weights.
    arrays: dict[str, Any] = {
        "signals": np.array(["adapted", "bm25"]),
        "weights": np.ones(2),
        "scales": np.ones(2),
    }
    about = {"generation": 1, "epoch": 0, "step": 1, "state_sha256": "", "learner": "own", "query_map": "W"}
    np.savez(tmp_path / "model.npz", W=np.eye(2), metadata=np.array(json.dumps(about)), **arrays)
    (one,) = found({"kind": "ranking"}, learner=None, model=str(tmp_path / "model.npz"))
    assert "weighs 'bm25'" in one.text
    assert not found({"kind": "ranking"}, learner=None, model=str(tmp_path / "missing.npz"))
