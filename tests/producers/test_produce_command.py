"""`kinstream produce` on a broker: what it prints, and what is left after SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from kinstream.cli.main import cli
from kinstream.streams.errors import KinstreamError, SettingsError, SourceError
from kinstream.streams.records.codec.codec import decode, decode_event
from kinstream.streams.records.values import SampleBlock
from kinstream.streams.topics import partition_of

if TYPE_CHECKING:
    from tests.kafka.broker import KafkaBroker

ROOT = Path(__file__).parents[2]


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Producer:
    cluster = Producer({"bootstrap.servers": "x:1", "test.mock.num.brokers": 1, "log_level": 2})
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"{broker.host}:{broker.port}")
    monkeypatch.chdir(tmp_path)
    return cluster


def run(*arguments: str, command: str = "labelled") -> str:
    result = CliRunner().invoke(cli, ["produce", command, *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_sends_a_set_and_prints_a_summary(embedded: Producer, tmp_path: Path) -> None:
    told = run("sklearn:iris", "--space", "iris", "--block-rows", "40", "--shuffle-seed", "1")
    assert {"rows 150", "blocks 4", "classes 3"} <= {" ".join(line.split()) for line in told.splitlines()}
    assert not (tmp_path / ".kinstream").exists()


def test_the_summary_can_be_json(embedded: Producer) -> None:
    options = ["--hold-out", "0.3", "--shuffle-seed", "1", "--repeat", "2", "--json"]
    found = json.loads(run("sklearn:wine", "--space", "wine", "--load-id", "w", "--rate", "5000", *options))
    assert found["load_id"] == "w"
    assert found["rows"] == 2 * (178 - found["held_out"])
    assert found["was_complete"] is False


def test_columns_are_selected_by_options(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("sku;w_1;w_2;h;kind\na;1;2;3;x\nb;4;5;6;y\n")
    fields = ("label=kind", "id=sku", "vector.w=w_*", "vector=h")
    options = [word for field in fields for word in ("--field", field)]
    found = json.loads(run("shop.csv", "--space", "shop", *options, "--json"))
    assert (found["rows"], found["classes"]) == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (["gone.csv"], SourceError, "there is no such file"),
        (["sklearn:iris", "--block-rows", "0"], SettingsError, "block_rows"),
        (["sklearn:iris", "--rate", "0"], SettingsError, "rate"),
        (["a.csv", "--field", "vector=a", "--field", "vector=b"], SettingsError, "each field once"),
        (["a.csv", "--field", "labels=a"], SettingsError, "did you mean label"),
    ],
)
def test_a_mistake_is_told_before_anything_is_sent(
    embedded: Producer, arguments: list[str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        run(*arguments, "--space", "s")


SETTINGS = """
[worker]
stall_seconds = 0.2
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
from = ["one-pass"]
"""


def limited(config: str) -> str:
    arguments = ["sklearn:iris", "--space", "s", "--block-rows", "10", "--max-backlog", "3"]
    result = CliRunner().invoke(cli, ["--config", config, "produce", "labelled", *arguments])
    assert isinstance(result.exception, KinstreamError)
    return str(result.exception)


def test_a_backlog_is_not_guessed_for_agents_that_have_not_begun(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("")
    assert "no builder to wait for" in limited("none.toml")
    (tmp_path / "k.toml").write_text(SETTINGS)
    assert "builder-one-pass has no generation under checkpoints; start it first" in limited("k.toml")


def test_agents_that_do_not_read_end_the_load(
    embedded: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k.toml").write_text(SETTINGS)
    newest = "kinstream.streams.agents.generations.numbers.newest_generation"
    monkeypatch.setattr(newest, lambda settings, application: 1)
    assert "3 blocks wait for consumers" in limited("k.toml")


@pytest.mark.parametrize("command", ["labelled", "items", "clicks", "relations", "simulated-clicks"])
def test_the_help_costs_no_heavy_import(command: str) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from kinstream.cli.main import cli; "
        f"r = CliRunner().invoke(cli, ['produce', '{command}', '--help']); assert r.exit_code == 0; "
        "print([m for m in ('numpy', 'pyarrow', 'sklearn', 'confluent_kafka', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- catalogues, clicks, relations --------------------------------------------------------------------------------


def sent(cluster: Producer, space: str) -> list[Any]:
    """The records of a space on the embedded broker."""
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    topic = "kinstream.events"
    partitions = len(cluster.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer = Consumer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g", "enable.auto.commit": False}
    )
    place = TopicPartition(topic, partition_of(space, partitions), 0)
    _, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.assign([place])
    found: list[Any] = []
    while len(found) < end:
        messages = consumer.consume(end - len(found), timeout=20)
        assert messages
        found += [decode_event(message.value()) for message in messages]
    consumer.close()
    return [record for record in found if record.space == space]


def test_items_are_sent_with_their_vocabulary_in_the_summary(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("sku,w,colour,brand,gone\na,1,red,x,0\nb,2,blue,y,0\nc,,,,1\n")
    options = ["--space", "shop", "--field", "id=sku", "--one-hot", "colour", "--hashed", "text=brand:4"]
    options += ["--field", "deleted=gone", "--field", "vector=w"]
    found = json.loads(run("shop.csv", *options, "--json", command="items"))
    assert (found["rows"], found["items"], found["tombstones"]) == (3, 2, 1)
    assert found["vocabulary"] == {"colour": ["red", "blue"]}
    (block,) = sent(embedded, "shop")
    assert (block.ids, block.tombstones) == (("a", "b"), ("c",))
    assert [(t.name, t.vectors.shape) for t in block.tables] == [("x", (2, 3)), ("text", (2, 4))]
    told = run("shop.csv", *options, "--load-id", "again", command="items")
    assert "vocabulary colour: red, blue" in " ".join(told.split())


def test_items_are_deleted_by_name(embedded: Producer, tmp_path: Path) -> None:
    run("--space", "shop", "--delete", "a", "--delete", "b", command="items")
    (block,) = sent(embedded, "shop")
    assert (block.ids, block.tombstones) == ((), ("a", "b"))


def test_clicks_are_sent_with_columns_by_option(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "sku,rank,hit,at,who,q1,q2\na,1,0,1700000005,s,1,2\nb,2,1,1700000005,s,1,2\n"
    )
    fields = ("item=sku", "clicked=hit", "time=at", "session=who", "query_vector=q*")
    options = [word for field in fields for word in ("--field", field)] + ["--first-position", "1"]
    found = json.loads(run("log.csv", "--space", "shop", *options, "--json", command="clicks"))
    assert (found["rows"], found["impressions"], found["clicks"]) == (1, 2, 1)
    (block,) = sent(embedded, "shop")
    assert (block.ids, block.position.tolist()) == (("a", "b"), [0, 1])
    assert block.shown_at_ms.tolist() == [1_700_000_005_000]
    assert block.query_vectors[0].vectors.tolist() == [[1, 2]]


def test_relations_are_sent(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "judged.jsonl").write_text('{"a": "x", "b": "y", "similar": true}\n')
    options = ["--field", "left=a", "--field", "right=b", "--json"]
    found = json.loads(run("judged.jsonl", "--space", "shop", *options, command="relations"))
    assert (found["similar"], found["dissimilar"]) == (1, 0)
    (block,) = sent(embedded, "shop")
    assert (block.ids, block.similar.tolist()) == (("x", "y"), [True])
    assert block.time_ms[0] > 1_600_000_000_000


SOURCE = """
[sources.judged]
topic = "judgements"
kind = "relations"
space = "shop"
fields = { left = "of", right = "found[*].id", similar = "found[*].good", time = "@timestamp" }
when = { kind = "judged" }
"""


def test_a_file_is_sent_by_the_mapping_of_a_source(embedded: Producer, tmp_path: Path) -> None:
    (tmp_path / "kinstream.toml").write_text(SOURCE)
    found = [{"id": 1, "good": "yes"}, {"id": "b", "good": -1}]
    rows = [{"kind": "judged", "of": "a", "found": found}, {"kind": "seen", "of": "a", "found": found}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ["rows.jsonl", "--space", "shop", "--source", "judged"]
    told = json.loads(run(*options, "--json", command="relations"))
    assert (told["rows"], told["similar"], told["dissimilar"]) == (2, 1, 1)
    (block,) = sent(embedded, "shop")
    assert (block.ids, block.left.tolist(), block.similar.tolist()) == (
        ("a", "1", "b"),
        [0, 0],
        [True, False],
    )
    with pytest.raises(SettingsError, match="the source makes relations, not clicks"):
        run(*options, command="clicks")
    with pytest.raises(SettingsError, match="leave --field out"):
        run(*options, "--field", "left=of", command="relations")
    with pytest.raises(SettingsError, match=r"no \[sources.judge\] in the settings"):
        run("rows.jsonl", "--space", "shop", "--source", "judge", command="relations")


@pytest.mark.parametrize(
    ("command", "text", "options", "told"),
    [
        (
            "relations",
            "left,right,similar\na,b,1\nc,c,1\nd,17.0,0\ne,f,0\n",
            [],
            [
                "row 1: Relation",
                "  time_ms: that of sending",
                "row 2: refused, bad-shape: right (right): 'c' is related to itself",
            ],
        ),
        (
            "clicks",
            "item,clicked,time,session\na,0,20240101,s\nb,0,20240101,s\na,1,20240101,s\nc,1,soon,t\nd,1,20240101,u\n",
            [],
            ["row 3: refused, bad-shape: items (impressions[*].item): item 'a' appears twice in the list"],
        ),
        (
            "items",
            "id,w,gone,at\na,1,,20240101\nb,x,,20240101\nc,3,1,20240101\nd,4,,soon\n",
            ["--field", "deleted=gone", "--field", "time=at", "--field", "vector=w"],
            [
                "row 4: refused, bad-shape: time (at): 'soon' is no time",
                "row 3: ItemBlock",
                "  tombstones: [c]",
            ],
        ),
    ],
)
def test_a_file_is_tried_and_nothing_is_sent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    text: str,
    options: list[str],
    told: list[str],
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "nowhere:1")
    (tmp_path / "rows.csv").write_text(text)
    arguments = ["produce", command, str(tmp_path / "rows.csv"), "--space", "s", "--try", *options]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1, result.output
    for line in told:
        assert line in result.stdout, result.stdout
    assert " 2 refused; 2 bad-shape" in result.stdout
    found = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert len(found["refused"]) == 2
    assert found["fit"] + 2 == found["rows"]


def test_simulated_clicks_are_sent_after_their_items(embedded: Producer) -> None:
    options = ["--lists", "300", "--seed", "4", "--hold-out", "0.3"]
    found = json.loads(run("sklearn:iris", "--space", "sim", *options, "--json", command="simulated-clicks"))
    assert (found["lists"], found["classes"], found["rows"]) == (300, 3, found["items"] + 300)
    kinds = [type(record).__name__ for record in sent(embedded, "sim")]
    assert kinds == ["ItemBlock", "ClickBlock", "ClickBlock"]


@pytest.mark.parametrize(
    ("command", "arguments", "error", "told"),
    [
        ("items", [], SettingsError, "one of the two"),
        ("items", ["a.csv", "--delete", "a"], SettingsError, "one of the two"),
        ("items", ["--delete", "a", "--try"], SettingsError, "--try reads a FILE"),
        ("items", ["gone.csv"], SourceError, "there is no such file"),
        ("items", ["a.jsonl"], SourceError, "not a file that ends in"),
        ("items", ["a.csv", "--hashed", "brand"], SettingsError, "COLUMN:BUCKETS"),
        ("clicks", ["gone.csv"], SourceError, "there is no such file"),
        ("clicks", ["a.csv", "--field", "item"], SettingsError, "FIELD=COLUMN"),
        ("clicks", ["a.csv", "--field", "item=a", "--field", "item=b"], SettingsError, "each field once"),
        ("relations", ["gone.jsonl"], SourceError, "there is no such file"),
        ("relations", ["gone.jsonl", "--rate", "0"], SettingsError, "rate"),
        ("simulated-clicks", ["sklearn:iris", "--lists", "0"], SettingsError, "lists"),
        ("simulated-clicks", ["sklearn:iris", "--bias", "-1"], SettingsError, "bias"),
    ],
)
def test_a_mistake_in_any_command_is_told_before_anything_is_sent(
    embedded: Producer, tmp_path: Path, command: str, arguments: list[str], error: type[Exception], told: str
) -> None:
    (tmp_path / "a.csv").write_text("id,w\na,1\n")
    with pytest.raises(error, match=told):
        run(*arguments, "--space", "s", command=command)


# ---- a real broker ----------------------------------------------------------------------------------------------


def read(bootstrap: str, topic: str, partition: int) -> list[SampleBlock]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False})
    place = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.assign([place])
    found: list[SampleBlock] = []
    while len(found) < end:
        messages = consumer.consume(500, timeout=20)
        assert messages, f"nothing came after {len(found)} of {end} records"
        for message in messages:
            record = decode(message.value(), SampleBlock)
            assert isinstance(record, SampleBlock)
            found.append(record)
    consumer.close()
    return found


@pytest.mark.kafka
def test_a_load_killed_again_and_again_counts_every_row_once(kafka: KafkaBroker, tmp_path: Path) -> None:
    prefix = "killed-load"
    kafka.create_topic(f"{prefix}.events", 3)
    command = [
        sys.executable,
        "-m",
        "kinstream.cli.main",
        "--set",
        f"topics.prefix={prefix}",
        "produce",
        "labelled",
    ]
    command += [
        "sklearn:digits",
        "--space",
        "digits",
        "--block-rows",
        "20",
        "--shuffle-seed",
        "3",
        "--repeat",
        "2",
    ]
    command += ["--rate", "2000", "--json", "--progress-folder", str(tmp_path / "loads")]
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "PYTHONPATH": str(ROOT)}

    def start(**failpoints: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, **failpoints},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    # The third is confirmed up to about its hundredth block, so that the fourth sends some again; and the last as well.
    # If all 150 blocks are confirmed, 30 are left: the fourth is killed before it comes to the end.
    for hit in (1, 7, 150, 20):
        killed = start(KINSTREAM_FAILPOINTS=f"producer.after-send-before-ack=kill@{hit}")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    last = start()
    assert last.returncode == 0, last.stderr
    summary: dict[str, Any] = json.loads(last.stdout)
    assert summary["total_rows"] == 2 * 1797
    assert 0 < summary["resumed_from"] < 180

    found = read(kafka.bootstrap, f"{prefix}.events", partition_of("digits", 3))
    counted: list[SampleBlock] = []
    for block in found:
        assert block.load is not None
        assert block.load.sequence <= len(counted), "the log has lost a block"
        if block.load.sequence == len(counted):
            counted.append(block)
    assert len(found) > len(counted) == summary["total_blocks"]
    assert sum(len(block.labels) for block in counted) == 2 * 1797

    again = start()
    assert again.returncode == 0
    assert json.loads(again.stdout)["was_complete"]
    other = subprocess.run(
        [*command, "--block-rows", "30", "--load-id", summary["load_id"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert other.returncode == 2
    assert "block_rows was 20 and is 30" in other.stderr
