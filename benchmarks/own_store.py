"""What the service adds to a query of your own store: `kinstream serve` beside the same store asked directly.

The store is a PostgreSQL with pgvector and an HNSW index. Both ways are asked in turns, each on one connection that
stays open, so both are measured on the same machine at the same time. The service maps each query by an adapter of rank
64; what is asked directly is the mapped query, so both ask the store the same.

A drafted list is compared with a plain query in the same way: two spaces of one service, asked in turns. A query by
vector and text is compared with what a client does by hand for the same k: it asks the store twice, by prepared
statements on one connection, for the best by vector and for the best by text, each with every signal, and blends both
by the model's weights. It is asked through the service, and without HTTP in one process. The facts name, too, asking
twice for ids and one number alone, without a blend, and the load: on a shared machine only differences within a run say
something.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format
from threadpoolctl import threadpool_limits

from benchmarks.figures import Figure, percentile
from benchmarks.whole_lists import blocks
from kinstream.cli.local.system import free_port
from kinstream.learners.models.export import encode, export
from kinstream.learners.registry import create
from kinstream.search.backends.base import Query
from kinstream.search.backends.ranked import RankedSpace
from kinstream.search.queries.model import QueryModel
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import load
from tests.search.store_service import Gateway, section, served
from tests.support.postgres import postgres

NAME: Final = "own-store"
ITEMS: Final = 10_000
QUERIES: Final = 2_000
QUICK: Final = 300
NEIGHBOURS: Final = 10
#: Answers of both ways before the first that counts.
WARM_UP: Final = 50
MOST_MS: Final = 2.0
#: A drafted list asks the store for two rankings at the same time.
MOST_DRAFTED: Final = 1.5
CANDIDATES: Final = 100
_STATEMENT: Final = (
    "select id, 1 - (embedding <=> %s::vector) from docs order by embedding <=> %s::vector limit %s"
)
#: What is asked by hand for the same candidates, and all that is known of each: any word of the text. Signals are those
#: of what was found, and not of all rows that were compared.
_ANY_WORD: Final = (
    "(select string_agg(quote_literal(lexeme), ' | ')::tsquery any_word"
    " from unnest(to_tsvector('english', %(text)s))) q"
)
_SIGNALS: Final = "1 - (d.embedding <=> %(plain)s::vector), 1 - (d.embedding <=> %(mapped)s::vector)"
_NEAR_BY_HAND: Final = (
    f"select id, {_SIGNALS}, coalesce(ts_rank(words, any_word, 1), 0) from {_ANY_WORD}, (select id, embedding, words"
    f" from docs order by embedding <=> %(mapped)s::vector limit {CANDIDATES}) d"
)
_TEXT_BY_HAND: Final = (
    f"select id, {_SIGNALS}, rank from (select id, ts_rank(words, any_word, 1) rank from docs, {_ANY_WORD} where words"
    f' @@ any_word order by rank desc, id collate "C" limit {CANDIDATES}) f join docs d using (id)'
)
#: The same without signals.
_BEST_BY_TEXT: Final = (
    "select id, ts_rank(words, any_word, 1) rank from docs, (select string_agg(quote_literal(lexeme), ' | ')::tsquery"
    " any_word from unnest(to_tsvector('english', %s))) q where words @@ any_word"
    ' order by rank desc, id collate "C" limit %s'
)
WORDS: Final = 5_000
#: A query by vector and text, over asking the store twice.
MOST_RANKED_MS: Final = 3.0
MOST_SPACE_MS: Final = 1.5
_STARTS: Final = 60.0
_VERSION: Final = ModelVersion("docs", "adapter", "adapter/1", 1, 0, 1, "t", 0, 1, "", "00" * 32, 1)


def vectors(number: int, d: int, seed: int) -> NDArray[np.float32]:
    found = np.random.default_rng([43, d, seed]).normal(size=(number, d))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def model_file(folder: Path, d: int) -> Path:
    """An adapter that has learned a little, exported."""
    learner: Any = create("adapter")
    X = vectors(600, d, 7)
    learner.learn_pairs(X[:300], X[300:])
    path = folder / "adapter.npz"
    path.write_bytes(encode(export(learner, _VERSION, {}), "npz"))
    return path


def started(folder: Path, url: str, model: Path, port: int, more: str = "") -> subprocess.Popen[bytes]:
    (folder / "url").write_text(url)
    settings = folder / "kinstream.toml"
    settings.write_text(
        f'[serve]\nhttp_port = {port}\n[serve.spaces.docs]\nmodel = "{model}"\nbackend = "pgvector"\n'
        f'connection_file = "{folder / "url"}"\ncollection = "docs"\n{more}'
    )
    command = [sys.executable, "-m", "kinstream.cli.main", "--config", str(settings), "serve"]
    with (folder / "serve.log").open("wb") as log:
        return subprocess.Popen([*command, "--unsupervised"], stdout=log, stderr=log, start_new_session=True)


def wait(port: int) -> None:
    limit = time.monotonic() + _STARTS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        if time.monotonic() > limit:
            raise RuntimeError(f"the service is not ready within {_STARTS:g} s")
        time.sleep(0.1)


def measure(d: int, number: int) -> tuple[list[float], list[float]]:
    """Seconds of every query, through the service and directly; both find the same items."""
    through: list[float] = []
    direct: list[float] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        with postgres() as server:
            server.fill("docs", [str(n) for n in range(ITEMS)], vectors(ITEMS, d, 1))
            with psycopg.connect(server.url, autocommit=True) as store:
                store.execute("create index on docs using hnsw (embedding vector_cosine_ops)")
                store.execute("analyze docs")
                model = model_file(folder, d)
                adapter = QueryModel.from_file(model)
                process = started(folder, server.url, model, port)
                try:
                    wait(port)
                    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    for query in vectors(WARM_UP + number, d, 2):
                        body = json.dumps({"vectors": query.tolist(), "k": NEIGHBOURS})
                        began = time.perf_counter()
                        client.request("POST", "/search", body, {"Content-Type": "application/json"})
                        found = client.getresponse().read()
                        through.append(time.perf_counter() - began)
                        mapped = adapter.map(query)
                        began = time.perf_counter()
                        text = str(mapped.tolist())
                        rows = store.execute(_STATEMENT, (text, text, NEIGHBOURS), prepare=True).fetchall()
                        direct.append(time.perf_counter() - began)
                        (result,) = json.loads(found)["results"]
                        if {one["id"] for one in result["neighbours"]} != {row[0] for row in rows}:
                            raise RuntimeError("the service and the store found other items")
                    client.close()
                finally:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    return through[WARM_UP:], direct[WARM_UP:]


def measure_drafts(d: int, number: int) -> tuple[list[float], list[float]]:
    """Seconds of every query of a space that drafts all lists, and of one without a gate, in turns.

    Both are spaces of one service, with the same table and the same newest model, over one connection that stays open.
    The service runs in this process, since its models come from lists in place of brokers.
    """
    drafted: list[float] = []
    plain: list[float] = []
    learner: Any = create("adapter")
    X = vectors(600, d, 7)
    learner.learn_pairs(X[:300], X[300:])
    with postgres() as server:
        server.fill("docs", [str(n) for n in range(ITEMS)], vectors(ITEMS, d, 1))
        with psycopg.connect(server.url, autocommit=True) as store:
            store.execute("create index on docs using hnsw (embedding vector_cosine_ops)")
            store.execute("analyze docs")
        place = {"backend": "pgvector", "connection": server.url, "collection": "docs", "distance": "cosine"}
        spaces = {name: section(**place) for name in ("drafted", "plain")}
        gateway = Gateway(spaces, gate={"drafted": {"share": 1.0}})
        gateway.service.start()
        # As the command does.
        limits = threadpool_limits(limits=1)
        try:
            gateway.wait(lambda: gateway.service.ready, "ready")
            for name in spaces:
                gateway.announced.announce(name, learner, 1)
            gateway.wait(lambda: gateway.announced.handled, "the models are announced")
            gateway.settle()
            with served(gateway) as url:
                client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
                both = [("drafted", drafted), ("plain", plain)]
                for query in vectors(WARM_UP + number, d, 2):
                    # The second of the two finds the caches warm.
                    both.reverse()
                    for name, times in both:
                        asked = {"space": name, "vectors": query.tolist(), "k": NEIGHBOURS}
                        body = json.dumps(asked)
                        began = time.perf_counter()
                        client.request("POST", "/search", body, {"Content-Type": "application/json"})
                        found = json.loads(client.getresponse().read())
                        times.append(time.perf_counter() - began)
                        if bool(found["results"][0].get("list_id")) != (name == "drafted"):
                            raise RuntimeError(f"the space {name} has not answered as it should")
                client.close()
        finally:
            gateway.service.stop()
            limits.restore_original_limits()
    return drafted[WARM_UP:], plain[WARM_UP:]


def texts(number: int, words: int, seed: int) -> list[str]:
    """Texts of so many words each, which are as unequally frequent as in a language."""
    draw = np.random.default_rng([44, seed])
    shares = 1.0 / np.arange(10, WORDS + 10)
    found = draw.choice(WORDS, size=(number, words), p=shares / shares.sum())
    return [" ".join(f"w{word}x" for word in row) for row in found]


def ranking_file(folder: Path, d: int) -> Path:
    """A ranking that has learned a little from lists with scores of a text, exported."""
    learner: Any = create("ranking", start={"similarity": 0.5, "text": 0.5})
    for block in blocks(300, d, ("text",)):
        learner.learn(block)
    path = folder / "ranking.npz"
    path.write_bytes(encode(export(learner, _VERSION, {}), "npz"))
    return path


def fill_with_texts(store: psycopg.Connection[Any]) -> None:
    """Give the table texts, and both indexes."""
    store.execute("create index on docs using hnsw (embedding vector_cosine_ops)")
    store.execute("alter table docs add column body text")
    with store.cursor() as cursor:
        rows = [(text, str(n)) for n, text in enumerate(texts(ITEMS, 60, 1))]
        cursor.executemany("update docs set body = %s where id = %s", rows)
    column = "tsvector generated always as (to_tsvector('english', body)) stored"
    store.execute(f"alter table docs add column words {column}")
    store.execute("create index on docs using gin (words)")
    store.execute("vacuum full analyze docs")


class _Binary(Dumper):
    """Sends a vector as the server receives it, as clients of pgvector do."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return struct.pack(">HH", len(obj), 0) + bytes(obj.astype(">f4"))


def by_hand(store: psycopg.Connection[Any], model: QueryModel, query: Any, text: str) -> list[str]:
    """The ids of the best, by two statements and a blend."""
    mapped = model.asking(model.map(query))
    asked = {"plain": model.asking(query), "mapped": mapped, "text": text}
    rows = store.execute(_NEAR_BY_HAND, asked, prepare=True).fetchall()
    rows += store.execute(_TEXT_BY_HAND, asked, prepare=True).fetchall()
    ids, *signals = zip(*{row[0]: row for row in rows}.values(), strict=True)
    assert model.blend is not None
    values = model.blend(dict(zip(("similarity", "adapted", "text"), np.array(signals), strict=True)))
    return [ids[at] for at in np.argsort(-values, kind="stable")[:NEIGHBOURS]]


class Spent:
    """Seconds of every answer, and of the processor in this process and in those that are named."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.busy: list[float] = []

    @contextmanager
    def timed(self, *others: int) -> Iterator[None]:
        began, busy = time.perf_counter(), time.process_time() + _busy(others)
        yield
        self.wall.append(time.perf_counter() - began)
        self.busy.append(time.process_time() + _busy(others) - busy)

    def p50_ms(self) -> float:
        return percentile(self.wall[WARM_UP:], 0.5) * 1e3

    def busy_ms(self) -> float:
        return sum(self.busy[WARM_UP:]) / len(self.busy[WARM_UP:]) * 1e3


def _busy(processes: Iterable[int]) -> float:
    """Seconds of the processor that the threads of processes have had."""
    tasks = (task for one in processes for task in Path(f"/proc/{one}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure_ranked(d: int, number: int) -> dict[str, Spent]:
    """Queries by vector and text: of a service, of its space in this process, by hand, and by hand for ids alone.

    All use one client library and the same learned ranking, in turns; the first three find the same items.
    """
    spent = {name: Spent() for name in ("service", "space", "by hand", "ids")}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, postgres() as server:
        folder, port = Path(name), free_port()
        server.fill("docs", [str(n) for n in range(ITEMS)], vectors(ITEMS, d, 1))
        with psycopg.connect(server.url, autocommit=True) as store:
            fill_with_texts(store)
            store.adapters.register_dumper(np.ndarray, _Binary)
            store.execute(f"set hnsw.ef_search = {CANDIDATES}")
            model = ranking_file(folder, d)
            url = f"{server.url}&options=-c%20hnsw.ef_search%3D{CANDIDATES}"
            process = started(folder, url, model, port, f'text = "words"\ncandidates = {CANDIDATES}\n')
            settings = load(folder / "kinstream.toml")
            space = RankedSpace(settings, "docs", settings.serve.spaces["docs"], None)
            adapter = QueryModel.from_file(model)
            # As the command does.
            limits = threadpool_limits(limits=1)
            try:
                space.start()
                wait(port)
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                many = WARM_UP + number
                both = zip(vectors(many, d, 2), texts(many, 4, 2), strict=True)
                for nth, (query, text) in enumerate(both):
                    body = json.dumps({"vectors": query.tolist(), "texts": text, "k": NEIGHBOURS})
                    mapped = adapter.map(query)
                    # Who asks for a query first finds the caches cold.
                    for turn in range(4):
                        way = ("service", "by hand", "space", "ids")[(turn + nth) % 4]
                        with spent[way].timed(*([process.pid] if way == "service" else [])):
                            if way == "service":
                                client.request("POST", "/search", body, {"Content-Type": "application/json"})
                                found = client.getresponse().read()
                            elif way == "by hand":
                                wanted = by_hand(store, adapter, query, text)
                            elif way == "space":
                                asked = Query([b""], NEIGHBOURS, rows=query[None], texts=[text])
                                answer = space.answer(asked, lambda _: None).body
                            else:
                                near = (mapped, mapped, CANDIDATES)
                                store.execute(_STATEMENT, near, prepare=True).fetchall()
                                store.execute(_BEST_BY_TEXT, (text, CANDIDATES), prepare=True).fetchall()
                    for result in (json.loads(found), answer):
                        ids = [one["id"] for one in result["results"][0]["neighbours"]]
                        if ids != wanted:
                            raise RuntimeError(f"the service ranks {ids}, and by hand it is {wanted}")
                client.close()
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                space.stop(5.0)
                limits.restore_original_limits()
    return spent


def ranked_figures(quick: bool) -> list[Figure]:
    """What ranking by vector and text adds to doing it by hand: by the service, and by its space alone."""
    spent = measure_ranked(384, QUICK if quick else QUERIES)
    hand, ids = spent["by hand"], spent["ids"]
    found = []
    for kind, way, most in (
        ("a query by vector and text", "service", MOST_RANKED_MS),
        ("the same without HTTP, in the client's process", "space", MOST_SPACE_MS),
    ):
        own = spent[way]
        facts = {
            "p50_ms": own.p50_ms(),
            "by_hand_p50_ms": hand.p50_ms(),
            "ids_alone_p50_ms": ids.p50_ms(),
            "ratio": own.p50_ms() / hand.p50_ms(),
            "processor_ms": own.busy_ms(),
            "by_hand_processor_ms": hand.busy_ms(),
            "items": ITEMS,
            "load": os.getloadavg()[0],
        }
        name = f"{ITEMS:,} items in pgvector, d=384: {kind} over asking the store twice, at p50"
        found.append(Figure(NAME, name, own.p50_ms() - hand.p50_ms(), "ms", at_most=most, facts=facts))
    return found


def draft_figures(quick: bool) -> list[Figure]:
    """What a drafted list costs, as a multiple of a plain query."""
    found = []
    for d in (384, 1_536):
        drafted, plain = measure_drafts(d, QUICK if quick else QUERIES)
        p50 = percentile(drafted, 0.5) * 1e3, percentile(plain, 0.5) * 1e3
        facts = {"drafted_p50_ms": p50[0], "plain_p50_ms": p50[1], "items": ITEMS, "queries": len(plain)}
        name = f"{ITEMS:,} items in pgvector, d={d}: a drafted list over a plain query at p50"
        found.append(Figure(NAME, name, p50[0] / p50[1], "times", at_most=MOST_DRAFTED, facts=facts))
    return found


def figures(quick: bool) -> list[Figure]:
    """The median of what the service adds, at two dimensions; and what a drafted list costs."""
    found = draft_figures(quick) + ranked_figures(quick)
    for d in (384, 1_536):
        through, direct = measure(d, QUICK if quick else QUERIES)
        p50 = percentile(through, 0.5) * 1e3, percentile(direct, 0.5) * 1e3
        facts = {"service_p50_ms": p50[0], "direct_p50_ms": p50[1], "items": ITEMS, "queries": len(through)}
        name = f"{ITEMS:,} items in pgvector, d={d}"
        more = (percentile(through, 0.99) - percentile(direct, 0.99)) * 1e3
        found += [
            Figure(NAME, f"{name}: added at p50", p50[0] - p50[1], "ms", at_most=MOST_MS, facts=facts),
            Figure(NAME, f"{name}: added at p99", more, "ms"),
        ]
    return found
