"""The core of a space is kept whatever it says about its own size: an empty collection is still a core."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.learners.one_modality.opml import OPML
from kinstream.processors.agent import builder_spec
from kinstream.processors.samples.one_pass import OnePass
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples, settings


@pytest.mark.parametrize("sized", [OnePass, OPML])
def test_a_core_of_length_0_is_not_made_again(
    sized: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(root: Path) -> list[object]:
        config, log = settings(), MemoryLog()
        for value in samples("a", 6):
            log.append("kinstream.events", b"a", value)
        agents = [Agent(builder_spec(config, "one-pass"), config, log, root)]
        agents.append(Agent(learner_spec(config, "opml"), config, log, root))
        for agent in agents:
            agent.run()
        return [repr(agent.states()) for agent in agents]

    expected = states(tmp_path / "plain")
    monkeypatch.setattr(sized, "__len__", lambda self: 0, raising=False)
    assert states(tmp_path / "sized") == expected
