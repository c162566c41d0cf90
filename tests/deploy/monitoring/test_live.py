"""The shipped rules, routes and dashboards on a running system: the right page, once; and none while all is well.

Real workers on a real Kafka, scraped by a real Prometheus, whose alerts a real Alertmanager delivers to a small server
here. The rules are the shipped ones with every duration divided by `DIVISOR` (see short_rules.py), Alertmanager's with
`CALM`; of the configurations, addresses are replaced, and nothing else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.crash.processes import Agent, System, running
from tests.deploy.monitoring.boards import FILES, filled, label_queries, read
from tests.deploy.monitoring.live import Asking, Feed, OnCall, expressions, without_data
from tests.deploy.monitoring.programs import ALERTS, CONFIG, DEPLOY, RECORDING, Alertmanager, Prometheus
from tests.deploy.monitoring.short_rules import hurried
from tests.docs.pages import ROOT, anchors
from tests.gate.gates import SECRET
from tests.kafka.broker import KafkaBroker, reserve_port
from tests.support.processes import Process, until

DIVISOR: Final = 30
CALM: Final = 6
#: Seconds that a page is waited for at most.
PATIENCE: Final = 300.0
SPACE: Final = "digits"
SETTINGS: Final = """
[builders.one-pass]
kind = "one-pass"

# The triplets of one sample go beyond a block: some are split from their event, and counted apart.
[builders.random]
kind = "random-triplets"
per_sample = 8
max_bytes = 1024

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.001
scaler = "zscore"

[learners.oahu]
kind = "oahu"
from = ["one-pass", "random"]
layers = 2
hidden = 16
embedding = 8

[learners.floor]
kind = "euclidean"
from = ["one-pass", "random"]
scaler = "zscore"

[checkpoints]
interval_seconds = 1.0

# An approximate index, each answer of which is checked.
[serve]
recall_every = 1

[serve.spaces.digits]
learner = "opml"
index = "lazy"
record = true

[sources.feedback]
topic = "monitored.feedback"
preset = "feedback"
"""
BUILDERS: Final = (Agent("builder", "one-pass", "events"), Agent("builder", "random", "events"))
OPML: Final = Agent("learner", "opml", "constraints")
AGENTS: Final = (
    *BUILDERS,
    OPML,
    Agent("learner", "oahu", "constraints"),
    Agent("learner", "floor", "constraints"),
    Agent("metrics", None, "outcomes"),
)


class Workers:
    """A worker for each agent, at an address that a restart does not change."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._reserved = {agent: reserve_port() for agent in AGENTS}
        self._query_port = reserve_port()
        self._running: dict[Agent, Process] = {}

    @property
    def targets(self) -> list[str]:
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in self._reserved.values()]

    def start(self, agent: Agent) -> None:
        port = int(self._reserved[agent].getsockname()[1])
        setting = f"worker.http_port={port}"
        self._running[agent] = self._system.start(agent.application, "--set", setting, *agent.command)

    def wait(self) -> None:
        for agent, process in self._running.items():
            until(lambda process=process: process.url() is not None, f"{agent.application} serves")  # type: ignore[misc]

    def search(self) -> str:
        """A service; its address."""
        port = int(self._query_port.getsockname()[1])
        self._query = self._system.start("serve", "--set", f"serve.http_port={port}", "serve")
        return f"127.0.0.1:{port}"

    def stop(self, agent: Agent) -> None:
        assert self._running.pop(agent).stop(60.0) == 0

    def stop_all(self) -> None:
        """Ask all at once, and do not wait."""
        for process in (*self._running.values(), self._query):
            process.popen.terminate()

    def close(self) -> None:
        for one in (*self._reserved.values(), self._query_port):
            one.close()


def prometheus_config(folder: Path, targets: list[str], alertmanager: str) -> Path:
    """The shipped configuration with these addresses, a scrape a second, and the hurried rules beside it."""
    for rules in (RECORDING, ALERTS):
        (folder / rules.name).write_text(
            hurried(rules.read_text(encoding="utf-8"), DIVISOR), encoding="utf-8"
        )
    (folder / "targets").mkdir()
    (folder / "targets" / "workers.yml").write_text(yaml.safe_dump([{"targets": targets}]), encoding="utf-8")
    text = CONFIG.read_text(encoding="utf-8").replace("../helm/kinstream/files/", "")
    text, found = re.subn(r"(scrape|evaluation)_interval: 15s", r"\1_interval: 1s", text)
    assert found == 2 and "localhost:9093" in text
    path = folder / "prometheus.yml"
    path.write_text(text.replace("localhost:9093", alertmanager.removeprefix("http://")), encoding="utf-8")
    return path


def alertmanager_config(folder: Path, receiver: str) -> Path:
    """The shipped configuration with this receiver, and waits divided by `CALM`."""
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
    assert text.count("http://localhost:9099") == 2
    waits = re.compile(r"(group_wait|group_interval|repeat_interval): (\d+)([smh])")
    factor = {"s": 1, "m": 60, "h": 3600}
    text, found = waits.subn(lambda m: f"{m[1]}: {int(m[2]) * factor[m[3]] // CALM}s", text)
    assert found == 3
    path = folder / "alertmanager.yml"
    path.write_text(text.replace("http://localhost:9099", receiver), encoding="utf-8")
    return path


def stays(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """See that something holds for so long."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        assert condition(), what
        time.sleep(0.2)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_right_page_is_delivered_once(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    began = time.monotonic()
    on_call, prometheus = OnCall(), Prometheus(tmp_path / "prometheus")
    alertmanager = Alertmanager(tmp_path / "alertmanager")

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {what}", flush=True)

    def paged(name: str) -> bool:
        return bool(on_call.told("pager", name))

    with ExitStack() as stack:
        system = stack.enter_context(
            running(System(tmp_path / "system", kafka.bootstrap, "monitored", 2, SETTINGS))
        )
        system.run("topics", "create")
        workers = Workers(system)
        stack.callback(workers.close)
        for agent in AGENTS:
            workers.start(agent)
        query_agent = workers.search()
        workers.wait()
        told("the workers serve")
        stack.enter_context(on_call.listening())
        stack.enter_context(alertmanager.serving(alertmanager_config(alertmanager.folder, on_call.url)))
        config = prometheus_config(prometheus.folder, [*workers.targets, query_agent], alertmanager.url)
        stack.enter_context(prometheus.serving(config))
        feed = stack.enter_context(Feed(kafka.bootstrap, system.topic("events"), SPACE).running())
        feed.send(feed.items(200))
        stack.enter_context(Asking(f"http://{query_agent}", Feed.DIMENSION).running())

        empty = expressions(elsewhere=False, divisor=DIVISOR)

        def all_have_data() -> bool:
            empty[:] = without_data(prometheus.query, empty)
            return not empty

        try:
            until(all_have_data, "every panel and every rule has data", PATIENCE, every=3.0)
        except TimeoutError as error:
            raise AssertionError(f"without data: {[ask.place for ask in empty]}") from error
        for selector, label in (pair for path in FILES for pair in label_queries(read(path))):
            assert prometheus.label_values(label, filled(selector)), (
                f"the variable {label} has nothing to choose from"
            )
        told("every expression of panels and rules has data")
        # The long run that a jump is measured against leaves out the last half hour, which is a minute here.
        before = f'job_space_learner:kinstream_constraints_scored:increase6h_before{{space="{SPACE}"}}'
        until(
            lambda: len([one for one in prometheus.query(before) if float(one["value"][1]) > 3000]) == 3,
            "there is a past to be compared with",
            PATIENCE,
            every=1.0,
        )
        told("there is a past to be compared with")
        assert not on_call.notices and not prometheus.firing(), "a healthy system has raised an alert"

        feed.flows.clear()
        stays(lambda: not on_call.notices, 30, "an idle system has raised an alert")
        assert not prometheus.firing()
        feed.flows.set()
        told("idle for a quarter of an hour, as the rules take it")

        feed.send(*(b"\x00\xff poison" for _ in range(80)))
        until(lambda: paged("KinstreamDeadLettersRising"), "the page about refused records", PATIENCE)
        told("paged: refused records")

        workers.stop(OPML)
        until(lambda: paged("KinstreamLearnerStalled"), "the page about the learner", PATIENCE)
        told("paged: the learner is gone")
        workers.start(OPML)
        ended = "resolved"
        until(
            lambda: bool(on_call.told("pager", "KinstreamLearnerStalled", ended)),
            "the learner is back",
            PATIENCE,
        )
        until(
            lambda: bool(on_call.told("pager", "KinstreamDeadLettersRising", ended)),
            "no more refused",
            PATIENCE,
        )
        told("both are over")

        feed.shifted = True
        until(lambda: paged("KinstreamMistakeRateJumped"), "the page about the jump", PATIENCE)
        told("paged: the mistake rate has jumped")

        workers.stop_all()
        until(lambda: paged("KinstreamDown"), "the page that nothing works", PATIENCE)
        told("paged: nothing works")
        consequences = {"KinstreamDown", "KinstreamMetricsAgentGone"}
        until(lambda: consequences <= prometheus.firing(), "what follows fires too", PATIENCE)
        stays(lambda: not paged("KinstreamMetricsAgentGone"), 10, "a consequence was sent")
        held = alertmanager.tool("alert", "query", "--inhibited")
        assert "KinstreamMetricsAgentGone" in held
        told("what follows is held back")

    pages = [notice for notice in on_call.notices if notice.status == "firing"]
    assert [(page.receiver, page.alertname) for page in pages] == [
        ("pager", "KinstreamDeadLettersRising"),
        ("pager", "KinstreamLearnerStalled"),
        ("pager", "KinstreamMistakeRateJumped"),
        ("pager", "KinstreamDown"),
    ]
    letters, stalled, jumped, down = (page.alerts for page in pages)
    assert {alert["labels"]["agent"] for alert in letters} == {b.application for b in BUILDERS}
    assert [alert["labels"]["learner"] for alert in stalled] == ["opml"]
    assert "opml" in {alert["labels"]["learner"] for alert in jumped}
    assert "floor" not in {alert["labels"]["learner"] for alert in jumped}
    assert [alert["labels"]["job"] for alert in down] == ["kinstream"]
    runbooks = anchors(ROOT / "docs" / "runbooks.md")
    for alert in (*letters, *stalled, *jumped, *down):
        told_ = alert["annotations"]
        assert told_["runbook_url"].removeprefix("docs/runbooks.md#") in runbooks
        assert (
            told_["summary"] and told_["description"] and "<" not in told_["summary"] + told_["description"]
        )
