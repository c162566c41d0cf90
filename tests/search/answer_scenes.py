"""Requests to spaces of either backend in every state that answers depend on, and what is answered.

`python -m tests.search.answer_scenes FILE` writes the answers.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import httpx
import numpy as np

from kinstream.search.service import answers as service_answers
from kinstream.search.stores.base import BadFilter, StoreHits
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version
from kinstream.streams.records.values import ItemBlock, Table
from kinstream.streams.records.withheld import Withheld
from tests.gate.gates import decision
from tests.search import index_service, store_service
from tests.support.processes import until

#: Method, path, body (an object, or bytes as they are), headers.
Request = tuple[str, str, Any, dict[str, str]]

X: Final = np.random.default_rng(4).integers(-8, 9, size=(40, 4)).astype(np.float32)
NAMES: Final = [f"item/{n} ä?#" for n in range(40)]
Q: Final = np.random.default_rng(5).integers(-8, 9, size=(3, 4)).astype(np.float32).tolist()
JSON: Final = {"content-type": "application/json"}
#: Headers of answers that clients act on.
HEADERS: Final = ("content-type", "retry-after", "allow", "www-authenticate", "cache-control")
TOKEN: Final = "a-token-of-the-web-shop"
LIMITS: Final[dict[str, Any]] = {"max_body_bytes": 20_000}


def get(path: str, **headers: str) -> Request:
    return "GET", path, None, headers


def post(path: str, **body: Any) -> Request:
    return "POST", path, body, JSON


def raw(body: bytes, path: str = "/search", **headers: str) -> Request:
    return "POST", path, body, headers or JSON


def malformed(space: str) -> list[Request]:
    """Bodies that are refused, of a space of four features."""
    whole = f'{{"space": "{space}", "vectors": '.encode()
    parts = [
        b"null}",
        b"[]}",
        b"[[]]}",
        b'"1234"}',
        b"[1, 2, 3, true]}",
        b'[[1, 2, 3, 4], [1, "2", 3, 4]]}',
        b"[1, 2, 3, 1e999]}",
        b"[1, 2, 3, 1e39]}",
        b"[1, 2, 3, NaN]}",
        b"[[1, 2, 3, 4], [1, 2, 3]]}",
        b"[[1, 2, 3]]}",
        b'{"y": [1, 2, 3, 4]}}',
        b"{}}",
        b'[1, 2, 3, 4], "k": 0}',
        b'[1, 2, 3, 4], "k": 21}',
        b'[1, 2, 3, 4], "k": 2.5}',
        b'[1, 2, 3, 4], "K": 2}',
        b'[1, 2, 3, 4], "query_id": 7}',
        b'[1, 2, 3, 4], "filter": [1]}',
        json.dumps([[1, 2, 3, 4]] * 11).encode() + b"}",
        b"[0, 0, 0, 0]",
    ]
    return [
        *(raw(whole + part) for part in parts),
        *map(raw, (b"", b"{", b"\xff\xfe", b"[" * 5_000, b"[]", b"7", f'{{"space": "{space}"}}'.encode())),
        raw(b"<x/>", **{"content-type": "text/xml"}),
        raw(b" " * 20_001),
        post("/search", space="nowhere", vectors=Q),
        post("/search", space="x" * 300, vectors=Q),
        post("/search", space=7, vectors=Q),
        get("/search"),
        get("/nowhere"),
        ("DELETE", "/spaces", None, {}),
    ]


PROBES: Final = [get("/healthz"), get("/readyz")]


@contextmanager
def index(
    spaces: dict[str, Any],
    before: Callable[[index_service.Agent], Any] = lambda _: None,
    ready: bool = True,
    **more: Any,
) -> Iterator[tuple[index_service.Agent, str]]:
    """Spaces of our own index; `before` appends and announces."""
    made = index_service.Agent(
        spaces={name: {"learner": "opml", **one} for name, one in spaces.items()}, **LIMITS, **more
    )
    made.announced.caught_up = ready
    made.service.start()
    try:
        before(made)
        if ready:
            made.wait(lambda: made.service.ready, "ready")
        with index_service.served(made) as url:
            yield made, url
    finally:
        made.service.stop()


def filled(made: index_service.Agent) -> None:
    made.events.append(index_service.items("shop", NAMES, X))


def learned(made: index_service.Agent) -> None:
    filled(made)
    made.events.append(index_service.items("a/../b ?", ["only"], X[:1]))
    made.announced.announce("shop", index_service.linear(4, 3), 12)
    made.settle()


def by_index() -> Iterator[tuple[str, str, list[Request]]]:
    """The scenes of the index: name, address, requests."""
    by_item = [
        get("/similar/item%2F3%20%C3%A4%3F%23?space=shop&k=4"),
        post("/similar/item%2F3%20%C3%A4%3F%23", space="shop", k=4),
        post("/similar", space="shop", items=NAMES[2:5], k=3, query_id="q"),
        post("/similar", space="shop", items=[NAMES[0], "zz"]),
        post("/similar", space="shop", items=[]),
        post("/similar", space="shop", items=NAMES[:11]),
        post("/similar", space="shop", items=["x" * 5_000]),
        get("/similar/zz?space=shop"),
        get("/similar/zz?space=shop&k=many"),
        get("/similar/zz?space=shop&k=21"),
        get("/similar/zz"),
    ]
    with index({"shop": {}, "a/../b ?": {}}, learned) as (_, url):
        yield "index: two spaces, one of them with a model", url, [
            *PROBES,
            get("/spaces"),
            post("/search", space="shop", vectors=Q[0]),
            post("/search", space="shop", vectors=Q, k=3, query_id="q"),
            post("/search", space="shop", vectors={"x": Q}, k=2),
            post("/search", space="shop", vectors=Q, k=2, filter={"lang": "en"}),
            post("/search", space="a/../b ?", vectors=Q[0], k=5),
            post("/search", vectors=Q),
            *by_item,
            post("/transform", space="shop", vectors=Q),
            post("/transform", space="a/../b ?", vectors=Q[0]),
            post("/transform", space="shop", vectors=Q, k=3),
            *malformed("shop"),
        ]  # fmt: skip
    with index({"shop": {}}, filled) as (_, url):
        yield "index: no model", url, [
            post("/search", vectors=Q, k=3),
            post("/search", vectors=[1e15] * 4, k=1),
            post("/similar", items=NAMES[:2], k=3),
            post("/transform", vectors=Q),
            get("/spaces"),
        ]  # fmt: skip
    parts = {"x": Q, "text": [row[:2] for row in Q]}

    def modalities(made: index_service.Agent) -> None:
        tables = Table("x", X), Table("text", X[:, :2].copy())
        made.events.append(ItemBlock("shop", tuple(NAMES), tables, 1, ()))

    with index({"shop": {}}, modalities) as (_, url):
        yield "index: two modalities", url, [
            post("/search", vectors=parts, k=2),
            post("/search", vectors=Q, k=2),
            post("/search", vectors={"x": Q}, k=2),
            post("/search", vectors=parts | {"x": Q[:2]}, k=2),
            post("/search", vectors=parts | {"text": Q}, k=2),
            get("/spaces"),
        ]  # fmt: skip
    with index({"shop": {}}) as (_, url):
        yield "index: no items", url, [
            post("/search", vectors=Q, k=2),
            get("/similar/zz"),
            post("/transform", vectors=Q),
            get("/spaces"),
        ]  # fmt: skip
    with index({"shop": {}}, ready=False) as (_, url):
        yield "index: not ready", url, [
            *PROBES,
            get("/spaces"),
            post("/search", vectors=Q),
            get("/similar/zz"),
            post("/transform", vectors=Q),
        ]  # fmt: skip
    drafted = [post("/search", vectors=Q, k=4), post("/search", vectors=Q, k=4, query_id="q"), get("/spaces")]

    def gated(made: index_service.Agent) -> None:
        filled(made)
        # The newest one first: a candidate of another step would stay for minutes.
        for step in (9, 3, 5):
            made.announced.announce("shop", index_service.linear(4, step), step)
        made.announced.decisions.take(decision(1, Version(1, 0, 3), Version(1, 0, 5), space="shop"))
        searchers = [one.searcher for one in made.space().indexes]
        made.wait(
            lambda: [one.glance().model.step for one in searchers] == [3, 5],
            "both models are in their indexes",
        )
        made.wait(lambda: _newest_of(made) == Version(1, 0, 9), "the newest one is known")

    with index({"shop": {}}, gated, gate={"shop": {"share": 1.0}}) as (made, url):
        yield "index: a decision and a challenger", url, [*drafted, post("/similar", items=NAMES[:2], k=4)]
        made.announced.decisions.take(
            decision(2, UNADAPTED, space="shop", verdict=Verdict.PIN, pinned=True, before=Version(1, 0, 3))
        )
        made.wait(lambda: not made.space().searcher.glance().learned, "the decision is obeyed")
        yield "index: pinned", url, drafted
        made.announced.decisions.take(decision(3, Version(1, 0, 4), space="shop"))
        made.wait(
            lambda: made.space().decided()[1],  # type: ignore[index]
            "the model is missing",
        )
        yield "index: the decided model is missing", url, drafted
    with index({"shop": {}}, learned_alone, randomise={"shop": {"kind": "swaps", "share": 1.0}}) as (_, url):
        yield "index: randomised lists", url, [*drafted, post("/similar", items=NAMES[:2], k=4)]

    def withheld(made: index_service.Agent) -> None:
        learned_alone(made)
        made.models().subscribe("shop", "opml").choice.note(Withheld(1, 0, 20, 0.031, 1_240))

    with index({"shop": {}}, withheld) as (_, url):
        yield "index: a newer model is withheld", url, [
            *PROBES,
            get("/spaces"),
            post("/search", vectors=Q, k=2),
            post("/transform", vectors=Q),
        ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clients"
        file.write_text(f"web {TOKEN}\n")
        file.chmod(0o600)
        with index({"shop": {}}, filled, clients_file=str(file), client_rate=0.001) as (_, url):
            yield "index: clients", url, clients()


def learned_alone(made: index_service.Agent) -> None:
    filled(made)
    made.announced.announce("shop", index_service.linear(4, 3), 12)
    made.settle()


def clients() -> list[Request]:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    return [
        *PROBES,
        get("/spaces"),
        get("/spaces", authorization="Bearer nobody"),
        ("POST", "/search", {"vectors": Q[0], "k": 1}, JSON | bearer),
        ("POST", "/search", {"vectors": Q[0], "k": 1}, JSON | bearer),
    ]


class Filtered(store_service.Memory):
    """It takes the filter `{"first": n}`, for its first n items."""

    def search(self, queries: Any, k: int, where: Any) -> StoreHits:
        if where is not None and set(where) != {"first"}:
            raise BadFilter("there is no such column")
        found = super().search(queries, len(self.names), None)
        names = self.names if where is None else self.names[: where["first"]]
        return found._replace(hits=[[hit for hit in hits if hit.id in names][:k] for hits in found.hits])


@contextmanager
def stored(
    before: Callable[[store_service.Gateway], Any] = lambda _: None,
    names: tuple[str, ...] = ("docs",),
    store: Any = None,
    ready: bool = True,
    **more: Any,
) -> Iterator[tuple[store_service.Gateway, Any, str]]:
    """Spaces of a store."""
    memory = store or Filtered(NAMES, X)
    spaces = {name: store_service.section() for name in names}
    made = store_service.Gateway(spaces, create=lambda *_: memory, **LIMITS, **more)
    made.announced.caught_up = ready
    made.service.start()
    try:
        if ready:
            made.wait(lambda: made.service.ready, "ready")
        before(made)
        with store_service.served(made) as url:
            yield made, memory, url
    finally:
        made.service.stop()


def mapped(made: store_service.Gateway) -> None:
    made.announced.announce("docs", store_service.bilinear(4, 3), 12)
    made.settle()


def by_store() -> Iterator[tuple[str, str, list[Request]]]:
    """The scenes of a store: name, address, requests."""
    with stored(mapped, ("docs", "a/../b ?")) as (_, _, url):
        yield "store: two spaces, one of them with a model", url, [
            *PROBES,
            get("/spaces"),
            post("/search", space="docs", vectors=Q[0]),
            post("/search", space="docs", vectors=Q, k=3, query_id="q"),
            post("/search", space="docs", vectors={"x": Q}, k=2),
            post("/search", space="docs", vectors=Q, k=4, filter={"first": 2}),
            post("/search", space="docs", vectors=Q, k=4, filter={"lang": "en"}),
            post("/search", space="a/../b ?", vectors=Q[0], k=5),
            post("/search", vectors=Q),
            post("/map", space="docs", vectors=Q),
            post("/map", space="a/../b ?", vectors=Q[0]),
            post("/map", space="docs", vectors=Q, k=3),
            post("/map", space="docs", vectors={"x": Q}),
            get("/similar/zz?space=docs"),
            post("/similar", space="docs", items=["zz"]),
            *malformed("docs"),
        ]  # fmt: skip
    with stored() as (_, memory, url):
        yield (
            "store: no model",
            url,
            [post("/search", vectors=Q, k=3), post("/map", vectors=Q), get("/spaces")],
        )
        memory.X = np.full_like(X, np.inf)
        yield "store: similarities that are no numbers", url, [
            post("/search", vectors=[[1, 2, 3, 4]], k=2),
            post("/search", vectors=[[0, 0, 0, 0]], k=2),
        ]  # fmt: skip
        memory.X, memory.away = X, "no route to db.internal"
        made_away = [post("/search", vectors=Q, k=3), post("/map", vectors=Q)]
        until_away(url)
        yield "store: away", url, [*PROBES, *made_away, get("/spaces")]
    few = Filtered(NAMES[:2], X[:2])
    with stored(store=few) as (_, _, url):
        yield "store: fewer items than asked", url, [post("/search", vectors=Q, k=3)]
    with stored(lambda made: made.announced.announce("docs", store_service.bilinear(3, 1), 3)) as (
        made,
        _,
        url,
    ):
        made.wait(lambda: made.announced.handled and made.service.spaces["docs"].behind, "it is known")
        yield "store: a model of another dimension", url, [post("/search", vectors=Q, k=3), get("/spaces")]
    with stored(ready=False) as (made, _, url):
        made.wait(lambda: made.space().trouble is None, "the store is checked")
        yield "store: not ready", url, [
            *PROBES,
            get("/spaces"),
            post("/search", vectors=Q),
            post("/map", vectors=Q),
        ]  # fmt: skip
    drafted = [
        post("/search", vectors=Q, k=4),
        post("/search", vectors=Q, k=4, query_id="q"),
        post("/search", vectors=Q, k=4, filter={"first": 2}),
        post("/map", vectors=Q),
        get("/spaces"),
    ]

    def gated(made: store_service.Gateway) -> None:
        for step in (9, 3, 5):
            made.announced.announce("docs", store_service.bilinear(4, step), step)
        made.announced.decisions.take(decision(1, Version(1, 0, 3), Version(1, 0, 5), space="docs"))
        made.settle()
        space = made.space()

        def there() -> bool:
            pair = space.pair()
            return pair.candidate is not None and (pair.serving.name.step, pair.candidate.name.step) == (3, 5)

        made.wait(there, "both are loaded")
        made.wait(lambda: _newest_of(made) == Version(1, 0, 9), "the newest one is known")

    with stored(gated, gate={"docs": {"share": 1.0}}) as (made, _, url):
        yield "store: a decision and a challenger", url, drafted
        made.announced.decisions.take(
            decision(2, UNADAPTED, space="docs", verdict=Verdict.PIN, pinned=True, before=Version(1, 0, 3))
        )
        yield "store: pinned", url, drafted
        made.announced.decisions.take(decision(3, Version(1, 0, 4), space="docs"))
        made.wait(lambda: made.space().pair().missing, "the model is missing")
        yield "store: the decided model is missing", url, drafted
    with stored(mapped, randomise={"docs": {"kind": "swaps", "share": 1.0}}) as (_, _, url):
        yield "store: randomised lists", url, drafted

    def withheld(made: store_service.Gateway) -> None:
        mapped(made)
        assert made.service.models is not None
        made.service.models.subscribe("docs", store_service.LEARNER).choice.note(
            Withheld(1, 0, 20, 0.031, 1_240)
        )

    with stored(withheld) as (_, _, url):
        yield "store: a newer model is withheld", url, [
            *PROBES,
            get("/spaces"),
            post("/search", vectors=Q, k=2),
            post("/map", vectors=Q),
        ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clients"
        file.write_text(f"web {TOKEN}\n")
        file.chmod(0o600)
        with stored(clients_file=str(file), client_rate=0.001) as (_, _, url):
            yield "store: clients", url, clients()


def _newest_of(made: index_service.Agent | store_service.Gateway) -> Version | None:
    """The model that ids of drafted lists name as newer than the challenger."""
    found = made.space().decided()
    return None if found is None else found[0].newest


def until_away(url: str) -> None:
    # A request that failed hastens the next check.
    httpx.post(f"{url}/search", json={"vectors": Q})
    until(lambda: httpx.get(f"{url}/readyz").status_code == 503, "it is seen that the store is away", 60.0)


def ask(client: httpx.Client, url: str, request: Request) -> dict[str, Any]:
    """The answer, without what differs from process to process."""
    method, path, body, headers = request
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    # The one name of what both services had.
    path = path.replace("/transform", "/map")
    told = client.request(method, url + path, content=content, headers=headers)
    found = told.json()
    if "pid" in found:
        found["pid"] = "..."
        for check in found["checks"]:
            if isinstance(check["value"], float):
                check["value"] = "seconds"
    kept = {name: told.headers[name] for name in HEADERS if name in told.headers}
    return {"status": told.status_code, "headers": kept, "answer": found}


def answers() -> dict[str, list[dict[str, Any]]]:
    """Every scene by its name, with requests and their answers."""
    found: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=30))
        # Ids of lists hold random bytes and their time.
        stack.enter_context(mock.patch.object(secrets, "token_bytes", lambda size: bytes(range(size))))
        stack.enter_context(mock.patch.object(time, "time_ns", lambda: 1_700_000_000_000_000_000))
        stack.enter_context(mock.patch.multiple(service_answers, MAX_ROWS=10, MAX_K=20))
        for scenes in (by_index, by_store):
            for name, url, requests in scenes():
                found[name] = [{"request": shown(one), **ask(client, url, one)} for one in requests]
    return found


def shown(request: Request) -> str:
    method, path, body, _ = request
    if isinstance(body, bytes):
        text = body.decode("latin-1")
        text = text if len(text) < 200 else f"{text[:40]}... ({len(text)} bytes)"
    else:
        text = "" if body is None else json.dumps(body, ensure_ascii=False)
        text = text if len(text) < 500 else f"{text[:40]}... ({len(text)} characters)"
    return f"{method} {path} {text}".strip()


def write(file: Path) -> None:
    """A line for each request."""
    scenes = []
    for name, asked in answers().items():
        rows = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in asked)
        scenes.append(f" {json.dumps(name)}: [\n{rows}\n ]")
    file.write_text("{\n" + ",\n".join(scenes) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
