"""A replay of the original file equals one of the log into which that file was loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinstream.producers.labelled.load import BlockSettings
from kinstream.replay.log.guarantees import Origin
from kinstream.replay.log.run import replay_blocks
from kinstream.replay.log.sources import open_load, parse_point
from kinstream.streams.errors import SettingsError, SourceError
from kinstream.streams.records.codec.codec import encode
from tests.replay.conftest import MakeSystem
from tests.replay.system import EVENTS

SHUFFLED = BlockSettings(block_rows=32, shuffle_seed=4, repeat=2, hold_out=0.2)


@pytest.fixture
def table(tmp_path: Path) -> str:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 3, 200)
    path = tmp_path / "table.npz"
    np.savez(path, x=draw.normal(size=(200, 5)) + labels[:, None], y=labels)
    return f"file:{path}"


@pytest.mark.long
@pytest.mark.parametrize("blocks", [BlockSettings(), SHUFFLED])
@pytest.mark.parametrize("name", ["sklearn:iris", "file"])
def test_a_file_ends_in_the_models_of_the_log_that_it_was_loaded_into(
    make_system: MakeSystem, table: str, name: str, blocks: BlockSettings
) -> None:
    name = table if name == "file" else name
    system = make_system()
    system.load(3, spaces=("other",))
    for block in open_load(name, "flowers", blocks).blocks(time_ms=7):
        system.log.append(EVENTS, b"flowers", encode(block))
    system.run()
    told: list[int] = []
    learners = tuple(system.settings.learners)
    of_file = replay_blocks(
        learners, system.settings, open_load(name, "flowers", blocks).blocks(), told.append
    )
    of_log = system.replay(Origin.EVENTS, space="flowers", compare=True)
    assert [(m.agent, m.step, m.digest) for m in of_file.models] == [
        (m.agent, m.step, m.digest) for m in of_log.models if m.space == "flowers"
    ]
    assert {c.verdict.value for c in of_log.comparisons} == {"equal"}
    assert of_file.outcomes == of_log.outcomes
    assert told[-1] == open_load(name, "flowers", blocks).rows
    assert of_file.claim.learners == learners


def test_a_data_set_is_named_by_its_kind() -> None:
    with pytest.raises(SettingsError, match="file:PATH or sklearn:NAME"):
        open_load("iris.csv", "s", BlockSettings())
    with pytest.raises(SourceError, match="no such file"):
        open_load("file:nowhere.csv", "s", BlockSettings())


def test_points_are_offsets_or_times() -> None:
    assert parse_point("17").offset == 17
    assert parse_point("1970-01-01T00:00:01").time_ms == 1000
    assert parse_point("1970-01-01T01:00:01+01:00").time_ms == 1000
    with pytest.raises(SettingsError, match="neither an offset nor an ISO 8601 time"):
        parse_point("-4")
