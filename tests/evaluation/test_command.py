"""`kinstream evaluate`: over files, logs and processes, interrupted and gone on with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from kinstream.evaluation.experiment.contenders import UNLEARNED
from kinstream.evaluation.experiment.feeds import ENOUGH
from kinstream.evaluation.runner.run import RESULT
from kinstream.evaluation.runner.store import CELLS
from kinstream.streams.errors import SettingsError
from tests.replay.conftest import MakeSystem
from tests.replay.system import connect
from tests.support.alive import alive

CONFIG = """
[topics]
partitions = 2
[builders.one-pass]
kind = "one-pass"
seed = 3
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
"""
QUICK = ("--jobs", "1", "--json")


def evaluate(*arguments: str) -> Any:
    """The result that is printed."""
    found = CliRunner().invoke(cli, ["evaluate", *arguments, *QUICK])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", "evaluate", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests in the background may have it ignored, and a process inherits that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture
def table(tmp_path: Path) -> str:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 3, 120)
    path = tmp_path / "table.npz"
    np.savez(path, x=draw.normal(size=(120, 5)) + labels[:, None], y=labels)
    return f"file:{path}"


@pytest.mark.long
def test_files_and_bundled_sets_stand_beside_each_other(table: str, tmp_path: Path) -> None:
    found = evaluate(
        *("--from", "sklearn:wine", "--from", table, "--learner", "opml", "--splits", "2"),
        *("--grid", "opml.gamma=1e-3,1e-2", "--output", str(tmp_path / "out")),
    )
    assert [data["name"] for data in found["data"]] == ["wine", "table"]
    assert [metric["name"] for metric in found["metrics"]] == [*UNLEARNED, "opml"]
    assert len(found["cells"]) == 2 * 2 * 6
    assert [one["scaling"] for one in found["plan"]["contenders"]] == [
        *("none", "none", "zscore", "zscore", "minmax"),
        "zscore",
    ]
    # Rows are repeated until there are enough constraints; a number of passes is taken as it is.
    assert all(cell["constraints"] >= ENOUGH for cell in found["cells"])
    assert json.loads((tmp_path / "out" / RESULT).read_text()) == found


def test_streams_in_order_have_one_pass(table: str, tmp_path: Path) -> None:
    words = ("--from", table, "--learner", "opml", "--splits", "1")
    found = evaluate(*words, "--in-order", "--output", str(tmp_path))
    assert found["cells"][-1]["constraints"] < 120


def test_a_newcomer_reads_one_table_one_recommendation_and_the_features(tmp_path: Path) -> None:
    words = ("--from", "sklearn:breast_cancer", "--jobs", "1", "--output", str(tmp_path))
    found = CliRunner().invoke(cli, ["evaluate", *words])
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    table, rest = lines[: lines.index("")], lines[lines.index("") :]
    assert [line.split("  ")[0] for line in table[2:]] == [*UNLEARNED, "mixture"]
    (title,) = [line for line in rest if line.startswith("Use ")]
    assert title.startswith("Use mixture: k-NN error 0.0") and title.endswith(" without learning.")
    at = rest.index(title)
    assert "the best un-learned metric, is 0.0" in rest[at + 1] and "95 % interval 0.0" in rest[at + 1]
    assert "µs a constraint to learn" in rest[at + 2] and ", 30 columns" in rest[at + 2]
    start = next(i for i, line in enumerate(rest) if line.startswith("feature of mixture"))
    shares = [float(line.split("  ")[-1].removesuffix(" %")) for line in rest[start + 1 : start + 12]]
    assert shares[:10] == sorted(shares[:10], reverse=True)
    assert sum(shares) == pytest.approx(100.0, abs=0.6)
    assert rest[start + 11].startswith("20 other features")
    assert "worst concave points" in "".join(rest[start + 1 : start + 6])
    # The table is six metrics and a heading of two lines; with everything else the output stays short.
    assert len(table) == 8 and len(lines) <= 35


def test_batch_learners_stand_beside(table: str, tmp_path: Path) -> None:
    words = ("--learner", "opml", "--learner", "nca", "--learner", "lda", "--splits", "1", "--in-order")
    found = evaluate("--from", table, *words, "--output", str(tmp_path / "out"))
    names = [metric["name"] for metric in found["metrics"]]
    assert names[-3:] == ["opml", "NCA (batch, 600 rows at most)", "LDA (batch)"]


def test_two_processes_and_an_interruption_end_in_the_bytes_of_one(tmp_path: Path) -> None:
    """Ctrl-C in the middle: what is finished is kept, said, and not repeated.

    What is interrupted has so many splits that no machine finishes it before Ctrl-C; the first ten of them are then
    asked for.
    """
    words = ("--from", "sklearn:wine", "--learner", "opml", "--learner", "lego")
    one, two = tmp_path / "one", tmp_path / "two"
    process = started(*words, "--splits", "2000", "--json", "--jobs", "2", "--output", str(two))
    try:
        deadline = time.monotonic() + 120
        while len(list(two.glob(f"{CELLS}/*.json"))) < 3:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no cell was finished"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "are finished and kept in" in said
    assert not (two / RESULT).exists()
    kept = {path.name: path.stat().st_mtime_ns for path in two.glob(f"{CELLS}/*.json")}
    process = started(*words, "--splits", "10", "--json", "--jobs", "2", "--output", str(two))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    after = {path.name: path.stat().st_mtime_ns for path in two.glob(f"{CELLS}/*.json")}
    assert {name: after[name] for name in kept} == kept
    evaluate(*words, "--splits", "10", "--output", str(one))
    assert (one / RESULT).read_bytes() == (two / RESULT).read_bytes()


@pytest.fixture
def running(make_system: MakeSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system in memory that has learned, and its settings in the working folder."""
    system = make_system()
    system.load()
    system.run()

    connect(system.log, monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("kinstream.toml").write_text(CONFIG)


@pytest.mark.long
def test_a_log_of_samples_is_split_by_rows(running: None) -> None:
    found = evaluate("--from", "events:d", "--splits", "2", "--in-order")
    assert found["data"] == [{"name": "d", "rows": 96, "features": 4, "classes": 3}]
    assert found["plan"]["splitter"]["name"] == "in-order"
    assert "error" in found["cells"][-1]["measures"]
    assert Path("evaluations/d/result.json").exists()


def test_a_range_of_a_log_is_evaluated_alone(running: None) -> None:
    """Partition 1 holds the 12 blocks of 8 rows of this space alone."""
    found = evaluate("--from", "events:d", "--start", "2", "--end", "9", "--splits", "1")
    assert found["data"][0]["rows"] == 7 * 8


def test_constraints_of_a_log_are_taken_as_they_are(running: None) -> None:
    found = evaluate("--from", "constraints:a", "--hold-out", "0.2", "--splits", "2")
    assert [metric["builder"] for metric in found["metrics"]] == ["one-pass"] * 6
    assert "held_out_mistakes" in found["cells"][0]["measures"]
    assert found["cells"][-1]["settings"] == {"gamma": 0.01}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--from is missing"),
        (("--from", "wine.csv"), "write file:PATH or sklearn:NAME"),
        (("--from", "sklearn:wine", "--end", "9"), "--end: only for --from events:SPACE"),
        (("--from", "events"), "needs a space: events:SPACE"),
        (("--from", "events:a", "--from", "sklearn:wine"), "stands alone"),
        (("--from", "events:nobody"), "no labelled samples of space 'nobody'"),
        (("--from", "sklearn:wine", "--learner", "nobody"), "there is no learner 'nobody'"),
    ],
)
def test_what_cannot_be_evaluated_is_said_in_one_line(
    running: None, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        evaluate(*arguments)


def test_its_processes_end_with_it_however_it_ends(tmp_path: Path) -> None:
    words = ("--from", "sklearn:wine", "--learner", "opml", "--splits", "2000", "--json", "--jobs", "2")
    process = started(*words, "--output", str(tmp_path))
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob(f"{CELLS}/*.json")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert len(children) >= 2
    while any(map(alive, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
