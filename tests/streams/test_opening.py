"""What a start says of the checkpoint store never holds the credentials of its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.streams.agents.generations.numbers import make_newest, newest_generation, recorded
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from kinstream.streams.settings import CheckpointSettings
from tests.streams.growing_system import GrowingCluster
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import settings

TOPICS = {f"kinstream.{role}": 2 for role in ("constraints", "outcomes", "models", "dead-letters")}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:pa55-word@bucket/x", "s3://***@bucket/x"),
        ("https://h/x?sig=pa55-word&a=1", "https://h/x?sig=***&a=1"),
        ("/var/lib/kinstream", "/var/lib/kinstream"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert CheckpointSettings(url=url).shown == shown


def test_no_refusal_to_open_tells_the_secret(tmp_path: Path) -> None:
    config = settings(checkpoints={"url": f"{tmp_path}/store?token=pa55-word"})
    spec = learner_spec(config, "opml")
    cluster: Any = GrowingCluster(MemoryLog(2), TOPICS)

    def told() -> str:
        with pytest.raises((GenerationMismatch, CheckpointError)) as error:
            open_generation(spec, config, cluster)
        return str(error.value)

    first = told()
    cluster.committed = lambda group, topic, partitions: {0: 5} if group.endswith("-v1") else {}
    lost = told()
    make_newest(config, spec.application, 4)
    gone = told()
    (tmp_path / "store?token=pa55-word" / spec.application / "newest").write_text("many")
    with pytest.raises(CheckpointError) as error:
        newest_generation(config, spec.application)
    texts = [first, lost, gone, str(error.value)]
    with pytest.raises(GenerationMismatch) as missing:
        recorded(config, spec, 9)
    for text in (*texts, str(missing.value)):
        assert "store?token=***" in text and "pa55" not in text
    assert "has read this topic before" in lost and "no birth record of generation 4" in gone
