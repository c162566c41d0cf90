"""One service with both backends: what it serves together, what it imports, and when it is alive and ready."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from kinstream.search.models.feed import ModelFeed
from kinstream.search.service.routes import make_app
from kinstream.search.service.service import Service, _Loaders, threads_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import Settings, load
from tests.search.index_service import Announced, Events, Updates, items, linear, on_a_port
from tests.search.store_service import Memory, bilinear, section
from tests.support.processes import until

X = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)
NAMES = [f"item-{n}" for n in range(20)]
LEARNER = "adapter"


class Both:
    """A space of each backend."""

    def __init__(self) -> None:
        spaces = {"shop": {"learner": LEARNER}, "docs": section()}
        self.settings = Settings.model_validate({"serve": {"http_port": 0, "spaces": spaces}})
        self.announced, self.store = Announced(LEARNER), Memory(NAMES, X)
        made: list[Events] = []

        def events(*arguments: Any) -> Events:
            made.append(Events(*arguments))
            return made[0]

        models = ModelFeed(self.settings, source=self.announced, loader=self.announced)
        self.service = Service(
            self.settings, models=models, create=lambda *_: self.store, events=events, updates=Updates
        )
        self.events = made[0]

    def until(self, condition: Any, what: str) -> None:
        until(condition, what, 60.0, every=0.002)


@pytest.fixture
def both() -> Any:
    made = Both()
    made.events.append(items("shop", NAMES, X))
    made.service.start()
    try:
        made.until(lambda: made.service.ready, "ready")
        yield made
    finally:
        made.service.stop()


@pytest.fixture
def client(both: Both) -> Any:
    with (
        on_a_port(both.settings.serve, make_app(both.service), both.until) as url,
        httpx.Client(base_url=url, timeout=10) as found,
    ):
        yield found


def test_one_process_answers_for_an_index_and_for_a_store(both: Both, client: httpx.Client) -> None:
    both.announced.announce("shop", linear(4, 1), 3)
    both.announced.announce("docs", bilinear(4, 2), 5)
    both.until(lambda: both.announced.handled, "announcements are read")
    both.until(lambda: not any(one.behind for one in both.service.spaces.values()), "both models serve")
    asked = {"vectors": X[0].tolist(), "k": 2}
    shop = client.post("/search", json={"space": "shop", **asked}).json()
    docs = client.post("/search", json={"space": "docs", **asked}).json()
    assert (shop["model"]["step"], docs["model"]["step"]) == (3, 5)
    assert set(shop) - set(docs) == {"catalogue"} and set(docs) - set(shop) == {"store"}
    assert [one["space"] for one in client.get("/spaces").json()["spaces"]] == ["shop", "docs"]
    told = client.get("/similar/item-1", params={"space": "docs"})
    assert (
        told.status_code == 404
        and told.json()["detail"] == "the store of 'docs' is asked by vector, not by item"
    )
    told = client.post("/search", json={"space": "shop", "filter": {"lang": "en"}, **asked})
    assert (told.status_code, told.json()["place"]) == (422, "filter")
    page = client.get("/metrics").text
    for space in ("shop", "docs"):
        assert f'kinstream_serve_queries_total{{space="{space}"}} 1.0' in page
        assert f'kinstream_serve_model_learned{{learner="adapter",space="{space}"}} 1.0' in page


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_store_that_is_away_is_no_reason_for_a_restart_and_a_thread_that_ended_is(
    both: Both, client: httpx.Client
) -> None:
    assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
    both.store.away = "no route"
    both.until(lambda: client.get("/readyz").status_code == 503, "it is seen that the store is away")
    alive = client.get("/livez")
    assert alive.status_code == 200 and alive.json()["status"] == "ok"
    assert client.post("/search", json={"space": "shop", "vectors": X[0].tolist()}).status_code == 200

    def ends() -> None:
        raise SystemExit

    both.service.stores["docs"]._check = ends  # type: ignore[method-assign]
    both.until(lambda: client.get("/livez").status_code == 503, "it is seen that the thread has ended")
    failed = [one["name"] for one in client.get("/livez").json()["checks"] if not one["ok"]]
    assert failed == ["threads"]


def test_each_space_has_the_loader_of_its_backend() -> None:
    asked: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self, version: Any, present: Any) -> Any:
            asked.append(f"{version.space} by {self.name}")

    loaders = _Loaders(Noting("models"), Noting("query maps"), {"docs": None})
    announced = Announced(LEARNER)
    for space in ("shop", "docs"):
        announced.announce(space, None, 1)
        loaders.load(announced._waiting.get(), None)  # type: ignore[arg-type]
    assert asked == ["shop by models", "docs by query maps"]


def test_there_are_more_threads_where_they_wait_for_stores() -> None:
    stored = Settings.model_validate({"serve": {"spaces": {"docs": section()}}}).serve
    assert threads_of(stored) == 16 and threads_of(stored.model_copy(update={"threads": 3})) == 3


@pytest.mark.parametrize(
    ("space", "loaded", "not_loaded"),
    [
        (
            {},
            "kinstream.search.index.engines",
            {"kinstream.search.backends.store", "psycopg", "qdrant_client"},
        ),
        (
            {"backend": "pgvector", "collection": "docs", "connection": "host=x"},
            "psycopg",
            {"kinstream.search.index.engines", "numba", "scipy", "qdrant_client"},
        ),
    ],
)
def test_a_backend_that_no_space_has_is_not_loaded(
    space: dict[str, Any], loaded: str, not_loaded: set[str]
) -> None:
    settings = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "serve": {"spaces": {"docs": {"learner": LEARNER, **space}}},
    }
    code = f"""
import json, sys
from kinstream.search.service.process import Server
from kinstream.streams.settings import Settings
made = Server(Settings.model_validate(json.loads({json.dumps(settings)!r})))
from kinstream.search.service.routes import make_app
make_app(made.service)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert loaded in modules and not modules & not_loaded


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[search.spaces.shop]\nlearner = "opml"\n',
            "[search]: there is no such section: the service is [serve], and its spaces are [serve.spaces.NAME]",
        ),
        ("[gateway]\nhttp_port = 1\n", "[gateway]: there is no such section: the service is [serve]"),
        (
            '[serve.spaces.a]\nlearner = "b"\ncollection = "c"\n',
            '[serve.spaces.a] collection: is not of backend = "index": remove it, or set backend to a kind of store',
        ),
        (
            '[serve.spaces.a]\nlearner = "b"\nbackend = "pgvector"\ncollection = "c"\nindex = "lazy"\n',
            '[serve.spaces.a] index: is not of backend = "pgvector": remove it, or set backend to "index"',
        ),
        ("[serve.spaces.a]\n", "[serve.spaces.a]: set learner, for its newest model"),
        (
            '[serve.spaces.a]\nlearner = "b"\nbackend = "pgvector"\n',
            "[serve.spaces.a]: set collection, to the table or the collection of the store",
        ),
    ],
)
def test_settings_that_do_not_fit_say_what_does(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(file)
    assert told in str(error.value)
