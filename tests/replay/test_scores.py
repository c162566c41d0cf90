"""A log of lists with scores and kinds of actions is replayed to the state that the agents have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.replay.log.guarantees import LogKind
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ConstraintBlock, ItemBlock, ItemClick, LoadPosition, Table
from kinstream.streams.signals import MOST_NAMES
from tests.replay.conftest import MakeSystem
from tests.replay.system import CONSTRAINTS, EVENTS, SPACES, System
from tests.replay.test_equality import TOPICS, agents_digests, differing, digests

ITEMS = tuple(f"i{n}" for n in range(30))
CONFIG: dict[str, Any] = {
    "builders": {"clicks": {"kind": "clicks", "action_weights": {"purchase": 4.0}}},
    "learners": {"ranking": {"kind": "ranking", "from": ["clicks"], "held_out": 0.2}},
}


def load(system: System, lists: int) -> None:
    rng = np.random.default_rng(7)
    for space in SPACES:
        table = Table("x", rng.normal(size=(len(ITEMS), 8)).astype(np.float32))
        system.log.append(EVENTS, space.encode(), encode(ItemBlock(space, ITEMS, (table,), 0)))
    for number in range(lists):
        for space in SPACES:
            shown = tuple(rng.choice(ITEMS, 6, replace=False).tolist())
            clicks = tuple(
                ItemClick(item, 1, None, str(rng.choice(["purchase", "click"])))
                for item in shown
                if rng.random() < 0.4
            )
            columns: dict[str, Any] = {
                "bm25": rng.random(6),
                "age": np.where(rng.random(6) < 0.3, np.nan, 2.0),
            }
            if number == lists // 2:
                columns = {f"s{n}": rng.random(6) for n in range(MOST_NAMES)}
            query = (Table("x", rng.normal(size=(1, 8)).astype(np.float32)),)
            position = LoadPosition("load", number)
            scores = None if number % 5 == 0 else Scores.of(columns)
            session, ranks = f"s{number}", tuple(range(6))
            click = Click(
                space,
                f"l{number}",
                shown,
                ranks,
                clicks,
                1,
                session,
                None,
                None,
                query,
                position,
                None,
                scores,
            )
            system.log.append(EVENTS, space.encode(), encode(click))


@pytest.mark.long
@pytest.mark.parametrize("origin", TOPICS)
def test_a_log_with_scores_is_replayed_to_the_agents_state(make_system: MakeSystem, origin: LogKind) -> None:
    system = make_system(**CONFIG)
    load(system, 41)
    system.run()
    blocks = [
        decode_constraints(message.value)
        for partition in range(2)
        for message in system.log.read(CONSTRAINTS, partition, 0)
    ]
    scored = [b for b in blocks if isinstance(b, ConstraintBlock) and b.scores is not None]
    assert len(scored) > 60 and any(b.weights.max() == 4.0 for b in scored)
    assert all(b.lists is not None and len(b.scores or ()) == len(b) for b in scored)
    assert {name for b in scored for name in (b.scores or Scores((), b.weights)).names} == {"age", "bm25"}
    result = system.replay(origin, compare=True)
    assert not differing(result)
    assert digests(result) == agents_digests(system)
