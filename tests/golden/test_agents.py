"""Checkpoints and records that version 1 wrote, of every kind of agent: today's code goes on from them."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners import registry as learners
from kinstream.processors import registry as builders
from kinstream.streams.agents.generations.birth import BirthFacts, compare, read_birth
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.errors import BadRecord, GenerationMismatch
from kinstream.streams.records.codec.codec import decode_constraints, decode_event, decode_outcome
from kinstream.streams.records.message import Message
from tests.golden.write_agents import CHECKPOINTS, LOG, birth_of, config, log_of, specs
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

#: Whose algorithm has a new version since: they want a new generation, and read their old states all the same.
RAISED = {
    "builder-clicks": ("clicks/1", "clicks/9"),
    "builder-closure": ("closure/1", "closure/4"),
    "learner-adapter": ("adapter/1", "adapter/4"),
    "learner-adasors-length": ("adasors/3", "adasors/7"),
    "learner-copml-length": ("copml/3", "copml/7"),
    "learner-euclidean": ("euclidean/1", "euclidean/3"),
    "learner-fusion-length": ("fusion-concatenate-opml-3/1", "fusion-concatenate-opml-7/1"),
    "learner-itml": ("itml/1", "itml/3"),
    "learner-itml-online": ("itml-online/1", "itml-online/11"),
    "learner-itml-online-length": ("itml-online/3", "itml-online/17"),
    "learner-kernel-lego": ("kernel-lego/1", "kernel-lego/11"),
    "learner-kernel-lego-length": ("kernel-lego/3", "kernel-lego/17"),
    "learner-lda": ("lda/1", "lda/11"),
    "learner-lda-length": ("lda/3", "lda/17"),
    "learner-lego": ("lego/1", "lego/11"),
    "learner-lego-length": ("lego/3", "lego/17"),
    "learner-lmnn": ("lmnn/1", "lmnn/3"),
    "learner-lomdml": ("lomdml/1", "lomdml/12"),
    "learner-lomdml-length": ("lomdml/4", "lomdml/18"),
    "learner-mahalanobis": ("mahalanobis/1", "mahalanobis/3"),
    "learner-mdml-length": ("mdml/3", "mdml/7"),
    "learner-mixture": ("mixture/3", "mixture/6"),
    "learner-oahu": ("oahu/1", "oahu/11"),
    "learner-oahu-length": ("oahu/3", "oahu/17"),
    "learner-oasis-length": ("oasis/3", "oasis/7"),
    "learner-omdl-lr-like": ("omdl-lr-like/1", "omdl-lr-like/11"),
    "learner-omdl-lr-like-length": ("omdl-lr-like/3", "omdl-lr-like/17"),
    "learner-omdml-length": ("omdml/3", "omdml/7"),
    "learner-omks": ("omks/1", "omks/11"),
    "learner-omks-length": ("omks/3", "omks/17"),
    "learner-opml-length": ("opml/3", "opml/7"),
    "learner-pola-length": ("pola/3", "pola/7"),
    "learner-ranking": ("ranking/1", "ranking/7"),
    "learner-rca": ("rca/1", "rca/3"),
    "learner-rdml-length": ("rdml/3", "rdml/7"),
    "learner-softmax": ("softmax/2", "softmax/3"),
    "learner-softmax-length": ("softmax/5", "softmax/9"),
    "learner-soml-da-length": ("soml-da/3", "soml-da/7"),
    "learner-soml-tg-length": ("soml-tg/3", "soml-tg/7"),
    "learner-sors-length": ("sors/3", "sors/7"),
}
#: An old state goes on, but not as a fresh one would: mixture learns its warm-up since; a state of adapter/1 keeps its
#: rank; one of fusion holds no vectors of its window, one of oahu no similar pairs.
OTHERWISE = (
    "learner-mixture",
    "learner-adapter",
    "learner-fusion-length",
    "learner-oahu",
    "learner-oahu-length",
)
SPECS = {spec.application: spec for spec in specs(config(CHECKPOINTS))}


@cache
def log() -> MemoryLog:
    return log_of(LOG)


def spec_of(application: str, root: Path) -> AgentSpec:
    return next(spec for spec in specs(config(root, then=True)) if spec.application == application)


def test_there_is_a_checkpoint_of_every_kind() -> None:
    kinds = {f"builder-{kind}" for kind in builders.names()} | {
        f"learner-{name}" for name in config(CHECKPOINTS).learners
    }
    assert {section.kind for section in config(CHECKPOINTS).learners.values()} == set(learners.names())
    assert {folder.name for folder in CHECKPOINTS.iterdir()} == kinds | {"metrics"}


def test_every_record_of_the_log_is_read() -> None:
    read, refused = 0, 0
    for role, decode in (
        ("events", decode_event),
        ("constraints", decode_constraints),
        ("outcomes", decode_outcome),
    ):
        for message in log().read(f"kinstream.{role}", 0, 0):
            try:
                assert decode(message.value).space == (message.key or b"").decode()
                read += 1
            except BadRecord:
                refused += 1
    assert (read > 90, refused) == (True, 1)


@pytest.mark.parametrize("application", SPECS)
def test_what_shapes_the_outputs_is_what_it_was(application: str) -> None:
    birth = read_birth(str(CHECKPOINTS), application, 1)
    assert birth is not None
    now = birth_of(SPECS[application], config(CHECKPOINTS))
    found = BirthFacts(
        now.settings_digest,
        now.settings,
        now.cluster_id,
        now.input_topic,
        now.input_topic_id,
        now.input_partitions,
        now.output_topics,
    )
    if application not in RAISED:
        # Raises where a new generation would be needed.
        compare(birth, found)
        assert birth.settings_digest == now.settings_digest
        return
    old, new = RAISED[application]
    with pytest.raises(GenerationMismatch, match=f"(?s){old}.*{new}.*--new-generation"):
        compare(birth, found)
    assert birth.settings == {**now.settings, "algorithm": old}
    assert now.settings["algorithm"] == new


@pytest.mark.parametrize("application", SPECS)
def test_it_is_restored_and_goes_on_as_if_it_had_never_stopped(application: str, tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINTS / application, tmp_path / "old" / application)
    old, fresh = (
        Agent(
            spec_of(application, tmp_path / name),
            config(tmp_path / name, then=True),
            log_of(LOG),
            tmp_path / name,
        )
        for name in ("old", "fresh")
    )
    half = old.runners[0].machine.next_offset
    assert 0 < half < old.log.end(old.topic, 0)
    assert old.runners[0].manifest is not None
    assert fresh.runners[0].machine.next_offset == 0
    old.run()
    fresh.run()
    mine, theirs = whole(old.runners[0]), whole(fresh.runners[0])
    assert mine.keys() == theirs.keys()
    assert len(mine) > 1
    if application in OTHERWISE:
        assert (
            len(emitted(old.log, old.spec.name, half)) == len(emitted(fresh.log, fresh.spec.name, half)) > 0
        )
        return
    for name in theirs:
        same(mine[name], theirs[name], f"{application}, {name}")
    written = [emitted(agent.log, agent.spec.name, half) for agent in (old, fresh)]
    assert written[0] == written[1]
    if old.spec.output_role is not None:
        assert written[0]


def test_the_golden_states_are_of_models_that_had_learned() -> None:
    for application, spec in SPECS.items():
        if spec.input_role != "constraints":
            continue
        agent = Agent(spec, config(CHECKPOINTS), log_of(LOG), CHECKPOINTS)
        found = [agent.runners[0].machine.find(name) for name in list(agent.runners[0].machine.names())]
        assert max(space.step for space in found if space is not None) > 0, application
        del agent


def whole(runner: PartitionRunner) -> dict[str, State]:
    """Every space's state, and the partition's own."""
    machine = runner.machine
    found = {"the partition": machine.partition_state()}
    for name in list(machine.names()):
        space = machine.find(name)
        assert space is not None
        found[name] = space.state()
    return found


def same(mine: State, theirs: State, where: str) -> None:
    """To rounding: versions and CPU may be others than those that wrote the golden files."""
    assert mine.keys() == theirs.keys(), where
    for name, value in theirs.items():
        place = f"{where}, {name}"
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(np.asarray(mine[name]), value, rtol=1e-4, atol=1e-6, err_msg=place)
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(np.asarray(mine[name]), value, err_msg=place)
        elif isinstance(value, float):
            assert mine[name] == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True), place
        elif isinstance(value, str) and value[:1] in ("[", "{"):
            assert close(json.loads(str(mine[name])), json.loads(value)), place
        else:
            assert mine[name] == value, place


def close(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(close(mine[key], value) for key, value in theirs.items())
    if isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(close, mine, theirs))
    if isinstance(theirs, float):
        return bool(mine == pytest.approx(theirs, rel=1e-4, abs=1e-6, nan_ok=True))
    return bool(mine == theirs)


def emitted(
    some: MemoryLog, name: str, half: int
) -> list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Keys and identities of what an agent has emitted for the second half."""
    found: list[Message] = []
    for role in ("constraints", "outcomes"):
        found += [
            message
            for message in some.read(f"kinstream.{role}", 0, log().end(f"kinstream.{role}", 0))
            if dict(message.headers).get("kinstream-emitter") == name.encode()
        ]
    return [
        (m.key, tuple(m.headers))
        for m in found
        if int((dict(m.headers)["kinstream-origin"] or b"").decode().split("/")[-2]) >= half
    ]
