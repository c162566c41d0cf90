"""A topic that takes small records only gets blocks that fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.producers.labelled.array_source import from_arrays
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.loads.blocks import BESIDE_BLOCK_BYTES, MAX_BLOCK_BYTES
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.loads.sender import produce
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import DeliveryError, SourceError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.values import SampleBlock
from kinstream.streams.settings import load as load_settings
from tests.faults.test_outputs import largest_message
from tests.kafka.broker import KafkaBroker
from tests.support.memory_log import MemoryLog, MemorySink

ROWS = 600


def labelled(load_id: str | None = None) -> LabelledLoad:
    source = from_arrays({"x": np.ones((ROWS, 20))}, np.arange(ROWS) % 3, identity="rows")
    return LabelledLoad(source, "toys", BlockSettings(), load_id)


def relations(folder: Path) -> PhasedLoad:
    rows = "".join(f"left {n},right {n},1\n" for n in range(ROWS))
    (folder / "rows.csv").write_text("left,right,similar\n" + rows)
    return PhasedLoad("relations", [open_events(str(folder / "rows.csv"), "relations", "toys")], "toys")


@pytest.mark.parametrize("largest", [1_000, 5_000, 100_000])
def test_blocks_fit_and_are_another_load(tmp_path: Path, largest: int) -> None:
    for make in (labelled, lambda: relations(tmp_path)):
        usual, small = make(), make()
        small.fit(largest)
        sizes = [len(encode(block)) for block in small.blocks()]
        assert max(sizes) <= largest
        assert sum(len(cut.rows) for cut in small.cuts()) == ROWS
        assert (small.load_id == usual.load_id) is (largest >= MAX_BLOCK_BYTES)
        # The usual limit, or a larger one, changes nothing.
        small.fit(MAX_BLOCK_BYTES * 2)
        assert (small.load_id, small.shaping()) == (usual.load_id, usual.shaping())


def test_a_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"row 101: 47 bytes do not fit into a block of"):
        relations(tmp_path).fit(430)


class TooSmall(MemorySink):
    """A topic that rejects what it is sent."""

    def confirm(self, deadline_seconds: float = 0.0) -> None:
        raise DeliveryError("kinstream.events rejected a record: too large", too_large=True)


def test_the_advice_on_a_rejected_block_works() -> None:
    largest = MAX_BLOCK_BYTES + BESIDE_BLOCK_BYTES
    told = f"once max.message.bytes of kinstream.events is {largest} or more, the same command continues from there"
    with pytest.raises(DeliveryError, match=told):
        produce(labelled(), TooSmall(MemoryLog()), "kinstream.events")


@pytest.mark.long
@pytest.mark.kafka
def test_a_small_topic_takes_a_load(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap)
    config = tmp_path / "kinstream.toml"
    config.write_text('[topics]\nprefix = "small-records"\npartitions = 1\nreplication = 1\n')
    (tmp_path / "rows.csv").write_text(
        "a,b,c,label\n" + "".join(f"{n},{n % 7},{n % 5},k{n % 3}\n" for n in range(20_000))
    )
    options = ["--progress-folder", str(tmp_path / "loads"), "--block-rows", "2000", "--json"]
    command = [
        "--config",
        str(config),
        "produce",
        "labelled",
        str(tmp_path / "rows.csv"),
        "--space",
        "s",
        *options,
    ]

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    settings = load_settings(str(config))
    run("--config", str(config), "topics", "create")
    largest_message(kafka, settings.topic("events"), 6_000)
    assert json.loads(run(*command))["rows"] == 20_000
    assert json.loads(run(*command))["was_complete"]
    cluster = Cluster(settings.kafka)
    try:
        ranges = {p: (low, high) for p, (low, high) in ends(cluster, settings.topic("events")).items()}
    finally:
        cluster.close()
    found = []
    for message in read_range(settings.kafka, settings.topic("events"), ranges):
        assert message.value is not None
        block = decode_event(message.value)
        assert isinstance(block, SampleBlock)
        found += block.tables[0].vectors[:, 0].tolist()
    assert found == [float(n) for n in range(20_000)]
