"""`kinstream serve` with a store, as a process: killed, with a store that is gone, beside a learner that learns."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.cli.local.system import free_port
from kinstream.learners.models.export import encode, export, learner_from
from kinstream.learners.models.query_map import query_map
from kinstream.streams.operations.models import data_of
from kinstream.streams.records.codec.codec import decode_model
from kinstream.streams.records.values import ModelVersion
from tests.faults import conftest as faults
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.kafka.broker import KafkaBroker
from tests.search.store_service import bilinear
from tests.support.pipeline import samples
from tests.support.postgres import postgres
from tests.support.processes import Process, until

systems = faults.make_system
D = 4
X = np.random.default_rng(3).normal(size=(200, D)).astype(np.float32)
NAMES = [str(n) for n in range(len(X))]
VERSION = ModelVersion("docs", "taste", "oasis/1", 2, 5, 70, "t", 0, 9, "", "ab" * 32, 1)


class Gateway:
    """A process under its supervisor, and requests to it."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def ask(self, Q: NDArray[Any], k: int = 5) -> dict[str, Any] | None:
        """The answer; None where there is none for now."""
        try:
            answer = httpx.post(f"{self.url}/search", json={"vectors": Q.tolist(), "k": k}, timeout=10)
        except httpx.HTTPError:
            return None
        assert answer.status_code in (200, 503), answer.text
        found: dict[str, Any] = answer.json()
        return found if answer.status_code == 200 else None


def check(answer: dict[str, Any], Q: NDArray[Any], W: NDArray[Any] | None, k: int = 5) -> None:
    """The answer is the exact scan of the items under one map."""
    mapped = Q.astype(np.float64) if W is None else Q.astype(np.float64) @ W
    for row, result in zip(mapped @ X.T.astype(np.float64), answer["results"], strict=True):
        found = [int(one["id"]) for one in result["neighbours"]]
        best = np.sort(row)[::-1][:k]
        np.testing.assert_allclose(row[found], best, rtol=0, atol=1e-5 * max(1.0, np.abs(row).max()))


@pytest.mark.timeout(300)
def test_killed_and_without_its_store_it_never_answers_wrong(tmp_path: Path) -> None:
    learner = bilinear(D, 3)
    (tmp_path / "taste.npz").write_bytes(encode(export(learner, VERSION, {}), "npz"))
    port = free_port()
    with postgres() as server:
        server.fill("docs", NAMES, X)
        (tmp_path / "url").write_text(server.url)
        (tmp_path / "kinstream.toml").write_text(
            f"""
            [serve]
            http_port = {port}
            request_seconds = 6.0
            [serve.spaces.docs]
            model = "{tmp_path}/taste.npz"
            backend = "pgvector"
            connection_file = "{tmp_path}/url"
            collection = "docs"
            distance = "inner-product"
            """
        )
        program = [sys.executable, "-m", "kinstream.cli.main", "--config", str(tmp_path / "kinstream.toml")]
        gateway = Gateway(Process([*program, "serve"], tmp_path / "serve.log", {}), port)
        stop, broken = threading.Event(), []
        answers: list[tuple[dict[str, Any], NDArray[Any]]] = []

        def ask(seed: int) -> None:
            own = np.random.default_rng([4, seed])
            try:
                while not stop.is_set():
                    Q = own.normal(size=(2, D)).astype(np.float32)
                    answer = gateway.ask(Q)
                    if answer is None:
                        stop.wait(0.05)
                    else:
                        answers.append((answer, Q))
            except BaseException as error:
                broken.append(error)

        def more(least: int) -> None:
            until(lambda: len(answers) > least or bool(broken), "it answers")
            assert not broken

        until(gateway.ready, "ready")
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            for kill in range(3):
                more(len(answers) + 20)
                os.kill(gateway.process.worker_pid(), signal.SIGKILL)
                more(len(answers) + 20)
                if kill == 1:
                    with server.frozen():
                        until(lambda: not gateway.ready(), "it is seen that the store hangs")
                        assert httpx.get(f"{gateway.url}/healthz", timeout=5).status_code == 200
                        until(
                            lambda: "waits for the store of 'docs': " in gateway.process.log(),
                            "the log says why",
                        )
                    until(gateway.ready, "the store is back")
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
            status = gateway.process.stop()
    assert not broken and status == 0, gateway.process.log()
    for answer, Q in answers:
        assert answer["model"]["digest"] == "ab" * 32 and answer["model"]["adapted"]
        check(answer, Q, learner.W)
    assert "Traceback" not in gateway.process.log()


@pytest.mark.timeout(500)
def test_it_follows_a_learner_that_learns_and_every_answer_is_of_the_model_that_it_names(
    kafka: KafkaBroker, systems: MakeSystem, tmp_path: Path
) -> None:
    port = free_port()
    with postgres() as server:
        server.fill("docs", NAMES, X)
        (tmp_path / "url").write_text(server.url)
        own = {"learner": "taste", "backend": "pgvector", "collection": "docs", "distance": "inner-product"}
        system = systems(
            kafka,
            learners__taste={"kind": "oasis", "from": ["one-pass"], "publish": "always"},
            serve__spaces={"digits": own | {"connection_file": str(tmp_path / "url")}},
            serve__http_port=port,
            checkpoints__keep=1_000,
        )
        system.worker("builder-one-pass", "--create")
        system.start("learner-taste", "worker", "learner", "taste", "--create")
        process = Process(system.command("serve"), system.folder / "serve.log", {})
        system.processes.append(process)
        gateway = Gateway(process, port)
        until(gateway.ready, "ready")
        rng = np.random.default_rng(8)
        answers: list[tuple[dict[str, Any], NDArray[Any]]] = []
        learned = samples("digits", 60, d=D)
        for part in range(6):
            system.send([("digits", value) for value in learned[part * 10 : part * 10 + 10]])
            before = len(answers)

            def asked(before: int = before) -> bool:
                Q = rng.normal(size=(2, D)).astype(np.float32)
                answer = gateway.ask(Q)
                if answer is not None:
                    answers.append((answer, Q))
                return len(answers) > before + 30

            until(asked, "it answers", every=0.05)
            if part % 2:
                os.kill(process.worker_pid(), signal.SIGKILL)

        def newest_serves() -> bool:
            asked()
            newest = max((version.step for version in announced(system)), default=0)
            return newest > 0 and bool(answers[-1][0]["model"]["step"] == newest)

        until(newest_serves, "the newest model serves")
        assert process.stop() == 0
        maps = {(v.generation, v.epoch, v.step): (v, W) for v, W in learners(system).items()}
    named = set()
    for answer, Q in answers:
        model = answer["model"]
        if not model["adapted"]:
            check(answer, Q, None)
            continue
        version, W = maps[model["generation"], model["epoch"], model["step"]]
        assert model["digest"] == version.sha256
        check(answer, Q, W)
        named.add(model["step"])
    assert len(named) > 2


def announced(system: System) -> list[ModelVersion]:
    found = [decode_model(message.value) for message in system.read("models") if message.value]
    return [version for version in found if version.epoch >= 0 and version.step and not version.deleted]


def learners(system: System) -> dict[ModelVersion, NDArray[np.float64]]:
    """W of every model that was announced, from its own file."""
    section = system.settings.learners["taste"]
    found = {}
    for version in announced(system):
        learner = learner_from(data_of(version, system.settings), section.kind, section.arguments())
        found[version] = query_map(learner).arrays["W"].astype(np.float64)
    return found
