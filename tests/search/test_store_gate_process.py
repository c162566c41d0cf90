"""A service, a gate and users on a real Kafka: a better model is promoted by clicks, a sabotaged one is not."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.cli.local.system import free_port
from kinstream.streams.agents.space import Space
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version
from kinstream.streams.records.values import Click, ItemClick, ModelVersion
from tests.faults import conftest as faults
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.gate.gates import SECRET
from tests.kafka.broker import KafkaBroker
from tests.learners.published_unit import create
from tests.support.postgres import postgres
from tests.support.processes import Process, until

systems = faults.make_system
TOPICS, LOUD = 4, 8
D = TOPICS + LOUD
ASKED = 25
GOOD, SABOTAGED = Version(1, 0, 100), Version(1, 0, 200)
draw = np.random.default_rng(6)


def embeddings(topics: NDArray[np.int64]) -> NDArray[np.float32]:
    """A few quiet numbers tell the topic; the loud ones have nothing to do with it."""
    quiet = 1.2 * np.eye(TOPICS)[topics] + 0.2 * draw.normal(size=(len(topics), TOPICS))
    found = np.concatenate([quiet, draw.normal(size=(len(topics), LOUD))], axis=1)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


TOPIC_OF = np.arange(60) % TOPICS
ITEMS = embeddings(TOPIC_OF)
NAMES = [f"doc-{n}" for n in range(len(ITEMS))]


def learner(away: int) -> Any:
    """A similarity that was learned from items of one topic; with `away` 1, from items of other topics."""
    made: Any = create("oasis")
    for _ in range(20):
        topics = draw.integers(0, TOPICS, 200)
        like, unlike = embeddings((topics + away) % TOPICS), embeddings((topics + 1 - away) % TOPICS)
        made.learn_triplets(embeddings(topics), like, unlike)
    return made


class Site:
    """The gateway and users of it, and the log that their clicks go to."""

    def __init__(self, system: System, port: int) -> None:
        self.system, self.url = system, f"http://127.0.0.1:{port}"
        self.served: list[Version] = []
        self.first: list[float] = []

    def spaces(self) -> dict[str, Any] | None:
        try:
            told = httpx.get(f"{self.url}/spaces", timeout=5)
        except httpx.HTTPError:
            return None
        return None if told.status_code != 200 else dict(told.json()["spaces"][0])

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def announce(self, version: Version, made: Any) -> Path:
        """Write a model as a checkpoint has it, and its announcement."""
        data = to_bytes(Space(epoch=version.epoch, step=version.step, core=made).state())
        digest = hashlib.sha256(data).hexdigest()
        file = self.system.folder / f"{digest}.state"
        file.write_bytes(data)
        topic = self.system.topic("constraints")
        record = ModelVersion(
            "docs",
            "taste",
            made.algorithm,
            *version,
            topic,
            0,
            version.step,
            str(file),
            digest,
            time.time_ns() // 10**6,
        )
        self.system.send([("docs/taste/1", encode(record))], role="models")
        return file

    def ask_and_click(self) -> dict[str, Any]:
        """Users ask, and click what is of their topic, with some mistakes; the clicks are events."""
        topics = draw.integers(0, TOPICS, ASKED)
        body = {"vectors": embeddings(topics).tolist(), "k": 10}
        told = httpx.post(f"{self.url}/search", json=body, timeout=20)
        assert told.status_code == 200, told.text
        answer: dict[str, Any] = told.json()
        model = answer["model"]
        self.served.append(Version(model["generation"], model["epoch"], model["step"]))
        now, events, right = time.time_ns() // 10**6, [], []
        for topic, result in zip(topics, answer["results"], strict=True):
            shown = tuple(one["id"] for one in result["neighbours"])
            liked = [TOPIC_OF[int(item.removeprefix("doc-"))] == topic for item in shown]
            right.append(np.mean(liked))
            if result["list_id"] is None:
                continue
            clicked = [
                item for item, is_liked in zip(shown, liked, strict=True) if is_liked and draw.random() < 0.5
            ]
            clicks = tuple(ItemClick(item, now) for item in clicked)
            click = Click("docs", result["list_id"], shown, tuple(range(len(shown))), clicks, now, None, None)
            events.append(("docs", encode(click)))
        self.first.append(float(np.mean(right)))
        if events:
            self.system.send(events)
        return answer

    def decisions(self) -> list[GateDecision]:
        found = [decode(m.value, ModelVersion, GateDecision) for m in self.system.read("models") if m.value]
        return [one for one in found if isinstance(one, GateDecision)]

    def until_decided(self, verdict: str) -> GateDecision:
        """Users go on until the gate has decided so."""
        found: list[GateDecision] = []

        def decided() -> bool:
            self.ask_and_click()
            decisions = self.decisions()
            # What has served was decided on before.
            assert self.served[-1] in {UNADAPTED, *(one.serving for one in decisions)}
            found[:] = [one for one in decisions if one.verdict.value == verdict]
            return bool(found)

        # A look is users who ask and click.
        until(decided, f"the gate says {verdict}", 120.0, every=0.05)
        return found[-1]

    def shows(self, what: str) -> bool:
        space = self.spaces()
        return space is not None and space["gate"]["decided"] == what


@pytest.mark.long
@pytest.mark.timeout(240)
def test_from_unadapted_to_promoted_and_a_sabotaged_model_never_serves(
    kafka: KafkaBroker, systems: MakeSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    port = free_port()
    with postgres() as server:
        server.fill("docs", NAMES, ITEMS)
        (tmp_path / "url").write_text(server.url)
        store = {"backend": "pgvector", "collection": "docs", "distance": "inner-product"}
        # Of 30 lists that it has all lost, the gate may know that it cannot win, and not yet that it is worse: a hold.
        gate = {"share": 1.0, "min_learned": 0, "every_minutes": 0.0, "min_sessions": 60, "per_item": 0}
        gate |= {"burst_minutes": 0, "bought_votes": 0}
        system = systems(
            kafka,
            learners__taste={"kind": "oasis", "from": ["one-pass"]},
            serve__spaces={"docs": {"learner": "taste", "connection_file": str(tmp_path / "url"), **store}},
            serve__http_port=port,
            gate__docs=gate,
        )
        system.start("gate", "worker", "gate", "--create")
        process = Process(system.command("serve"), system.folder / "serve.log", {})
        system.processes.append(process)
        site = Site(system, port)
        until(site.ready, "ready")
        assert site.ask_and_click()["candidate"] is None  # there is no model

        file = site.announce(GOOD, learner(0))
        until(lambda: (site.spaces() or {}).get("announced") == str(GOOD), "it is announced")
        promoted = site.until_decided("promote")
        assert (promoted.before, promoted.serving) == (UNADAPTED, GOOD)
        assert promoted.wins > promoted.losses and promoted.impressions >= 60
        assert site.served[0] == UNADAPTED
        until(lambda: site.shows(str(GOOD)), "the gateway obeys")
        before = site.first[0]
        site.served.clear()

        site.announce(SABOTAGED, learner(1))
        retired = site.until_decided("retire")
        assert retired.serving == GOOD and retired.losses > retired.wins
        until(lambda: (site.spaces() or {})["gate"]["challenger"] is None, "the gateway knows")
        answer = site.ask_and_click()
        assert answer["candidate"] is None, "a model that has lost is shown no more"
        assert set(site.served) == {GOOD}
        assert site.first[-1] > before + 0.2

        os.kill(process.worker_pid(), signal.SIGKILL)
        until(lambda: not site.ready(), "it is gone")
        until(site.ready, "it is back")
        assert site.ask_and_click()["model"]["step"] == GOOD.step

        def restarted() -> dict[str, Any]:
            os.kill(process.worker_pid(), signal.SIGKILL)
            until(lambda: not site.ready(), "it is gone")
            until(site.ready, "it is back")
            space = site.spaces()
            assert space is not None and space["gate"]["decided"] == str(GOOD)
            gate: dict[str, Any] = space["gate"]
            return gate

        # The learner has deleted the file: the gateway has copied it.
        file.unlink()
        assert restarted()["missing"] is False
        assert site.ask_and_click()["model"]["step"] == GOOD.step
        shutil.rmtree(system.root / "gate-models")
        assert restarted() == {"decided": str(GOOD), "missing": True, "challenger": None, "pinned": False}
        answer = site.ask_and_click()
        assert not answer["model"]["adapted"] and answer["candidate"] is None
        assert process.stop() == 0
    assert SABOTAGED not in site.served
    verdicts = [one.verdict.value for one in site.decisions()]
    assert verdicts == ["challenge", "promote", "challenge", "retire"]
