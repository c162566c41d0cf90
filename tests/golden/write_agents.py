"""Writes `agents-v1`: for every kind of agent a log, and a checkpoint and birth record half-way through it.

What is there stays as it is, and every later version has to restore it and go on from it. A kind that is new is added
with what the log holds. An agent whose outputs change on purpose gets a new version of its algorithm, and with that a
new generation, which `RAISED` of the tests says; where the format of its state changes as well, its folder is deleted
and written anew.

python -m tests.golden.write_agents
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kinstream.learners import registry as learners
from kinstream.learners.agent import learner_spec
from kinstream.learners.base.scaler import LENGTH, PUBLISHED
from kinstream.monitoring.agent import metrics_spec
from kinstream.processors import registry as builders
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.generations.birth import Birth, TopicIdentity, settings_digest, write_birth
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Action, Control, Kind
from kinstream.streams.settings import Settings
from tests.support import join_events
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples

FOLDER: Final = Path(__file__).with_name("agents-v1")
LOG: Final = FOLDER / "log.json"
CHECKPOINTS: Final = FOLDER / "checkpoints"
#: What makes a kind learn from the first messages on, and stay small.
SMALL: Final[dict[str, Any]] = {"warm_up": 8, "buffer": 24, "refit_every": 24}
#: The same kind in the unit that is the default.
FOLLOWING: Final[dict[str, Any]] = {"scaler": "zscore"}
#: Whose scaler follows the features whatever the unit.
ALWAYS: Final = ("oahu",)
#: Whose outcomes the metrics agent has counted: one with weights among them.
COUNTED: Final = ("opml", "omks")
#: What the defaults of a kind were when its checkpoint was written.
THEN: Final[dict[str, dict[str, Any]]] = {"softmax": {"per_group": 5}}
MESSAGES: Final = 6


def config(root: Path | str, then: bool = False) -> Settings:
    """Every kind of builder and learner under its own name; each learner follows the first builder it can use.

    With `then`, defaults that have changed since are given as they were.
    """
    sources = {kind: {"kind": kind} for kind in builders.names()}
    labelled = [k for k in sources if any(e.__name__ == "SampleBlock" for e in builders.create(k).follows)]
    made: dict[str, Any] = {}
    for kind in learners.names():
        usable = {learners.create(kind).form, Kind.TRIPLET}
        follows = next(name for name in reversed(labelled) if builders.create(name).emits & usable)
        arguments = {name: value for name, value in SMALL.items() if learners.has(kind, name)}
        arguments |= THEN.get(kind, {}) if then else {}
        # These generations began before learners held events out.
        made[kind] = {"kind": kind, "from": [follows], "held_out": 0.0, **arguments}
        if learners.has(kind, "unit") or kind in ALWAYS:
            made[f"{kind}-{LENGTH}"] = {**made[kind], **FOLLOWING}
        if learners.has(kind, "unit"):
            made[kind]["unit"] = PUBLISHED
    return Settings.model_validate(
        {
            "builders": sources,
            "learners": made,
            "metrics": {"top_spaces": 1, "window": 20},
            "checkpoints": {"url": str(root)},
        }
    )


def specs(settings: Settings) -> list[AgentSpec]:
    """Every agent, those that are read from before those that read."""
    return [
        *(builder_spec(settings, name) for name in settings.builders),
        *(learner_spec(settings, name) for name in settings.learners),
        metrics_spec(settings),
    ]


def events() -> Iterator[tuple[str, bytes]]:
    """Spaces of samples, one of them reset on the way; one of items, clicks and relations; some bytes of no use."""
    for number in range(MESSAGES):
        for space in ("labelled", "reset"):
            yield space, samples(space, MESSAGES)[number]
        if number == 2:
            yield "reset", encode(Control("reset", Action.RESET, 1_000))
            yield "labelled", b"\x00 of no use"
    for event in join_events.events("joined", 8):
        yield "joined", event


def log_of(path: Path) -> MemoryLog:
    """The log that was written, on one partition."""
    log = MemoryLog(partitions=1)
    for topic, records in json.loads(path.read_text()).items():
        for key, value, headers in records:
            log.append(
                topic,
                base64.b64decode(key),
                base64.b64decode(value),
                tuple((name, text.encode()) for name, text in headers),
            )
    return log


def _made(root: Path) -> MemoryLog:
    settings = config(root)
    log = MemoryLog(partitions=1)
    sources = [Agent(builder_spec(settings, name), settings, log, root) for name in settings.builders]
    counted = [Agent(learner_spec(settings, name), settings, log, root) for name in COUNTED]
    for space, value in events():
        log.append(settings.topic("events"), space.encode(), value)
        # So that what each makes lies all over the log.
        for agent in (*sources, *counted):
            agent.run()
    return log


def _write_log(log: MemoryLog) -> None:
    told: dict[str, Any] = {}
    for topic in ("kinstream.events", "kinstream.constraints", "kinstream.outcomes"):
        told[topic] = [
            [
                base64.b64encode(m.key or b"").decode(),
                base64.b64encode(m.value or b"").decode(),
                [(name, (value or b"").decode()) for name, value in m.headers],
            ]
            for m in log.read(topic, 0, 0)
        ]
    lines = [f"{json.dumps(topic)}: [\n{_rows(records)}\n]" for topic, records in told.items()]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


def _rows(records: list[Any]) -> str:
    return ",\n".join(json.dumps(record) for record in records)


def birth_of(spec: AgentSpec, settings: Settings) -> Birth:
    outputs = [] if spec.output_role is None else [settings.topic(spec.output_role)]
    return Birth(
        spec.application,
        1,
        settings_digest(spec.shaping),
        spec.shaping,
        {0: 0},
        "golden",
        settings.topic(spec.input_role),
        "id",
        1,
        {name: TopicIdentity("id", 1) for name in outputs},
        1_700_000_000_000,
    )


def main() -> None:
    """Write what is not there yet."""
    if not LOG.exists():
        with tempfile.TemporaryDirectory() as folder:
            _write_log(_made(Path(folder)))
    settings = config(CHECKPOINTS)
    for spec in specs(settings):
        if not write_birth(str(CHECKPOINTS), birth_of(spec, settings)):
            continue
        log = log_of(LOG)
        agent = Agent(spec, settings, log, CHECKPOINTS)
        agent.step(0, log.end(agent.topic, 0) // 2)
        agent.runners[0].checkpoint()
        print(f"{spec.application}: at offset {agent.runners[0].machine.next_offset}")


if __name__ == "__main__":
    main()
