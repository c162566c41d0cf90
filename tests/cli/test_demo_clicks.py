"""`kinstream demo clicks`: from clicks to a learned metric in one command; and what `kinstream demo` refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kinstream.cli.demo.summary import chained_pair
from kinstream.cli.main import cli
from kinstream.processors.base.builder import Origin
from kinstream.processors.closure.closure import Closure
from kinstream.streams.records.values import ItemBlock, Relation, Table
from tests.cli.test_demo import ROOT, ended, of_folder


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("KAFKA_", "KINSTREAM_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", "demo", "clicks", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob(".kinstream/demo-clicks/logs/*.log")))


def row(output: str, *names: str) -> list[str]:
    """The cells behind the first row that begins with these cells."""
    for line in output.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if tuple(cells[: len(names)]) == names:
            return cells[len(names) :]
    raise AssertionError(f"no row {names} in\n{output}")


@pytest.mark.timeout(600)
def test_clicks_become_a_metric_and_no_process_is_left(tmp_path: Path) -> None:
    process = demo(tmp_path)
    output = ended(process)
    assert process.returncode == 0, output + logs(tmp_path)
    assert of_folder(tmp_path) == []

    euclidean, scaled = (float(row(output, name)[0]) for name in ("euclidean", "euclidean, zscore"))
    for learner, baseline in (("opml", scaled), ("opml-raw", euclidean)):
        error, seen, utilised, mistakes, _rate = row(output, learner)
        assert float(error) < baseline
        assert int(seen) > int(utilised) > 0 and int(mistakes) > 0
        by_rule = [row(output, learner, f"click-skip-{rule}") for rule in ("above", "previous")]
        assert [sum(int(cells[n]) for cells in by_rule) for n in range(3)] == [
            int(seen),
            int(utilised),
            int(mistakes),
        ]

    given = {name: int(row(output, "clicks", name)[0]) for name in ("lists", "clicks", "preferences")}
    assert given["lists"] == int(row(output, "closure", "lists")[0]) > 0
    for name in ("lists", "clicks", "preferences"):
        fates = re.findall(r"[a-z-]+ (\d+)", row(output, "clicks", name)[1])
        assert sum(map(int, fates)) == given[name]
    # The rest belongs to held-out events, about one in fifty.
    (emitted,) = map(int, re.findall(r"preferences-emitted (\d+)", output))
    assert int(row(output, "opml")[1]) == int(row(output, "opml-raw")[1])
    assert 0.95 * emitted < int(row(output, "opml")[1]) < emitted
    assert "Dead letters: 0" in output

    for words in ("models list", "models export clicks", "closure explain clicks"):
        (command,) = (line.split() for line in output.splitlines() if words in line)
        told = subprocess.run(
            [sys.executable, "-m", "kinstream.cli.main", *command[command.index("--config") :]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.timeout(300)
def test_ctrl_c_ends_it_within_ten_seconds(tmp_path: Path) -> None:
    process = demo(tmp_path)
    wanted = tmp_path / ".kinstream/demo-clicks/logs/learner-opml.log"
    limit = time.monotonic() + 200
    while not wanted.exists():
        assert time.monotonic() < limit and process.poll() is None, logs(tmp_path)
        time.sleep(0.05)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 130
    assert of_folder(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demo", "flowers"], "'flowers' is not one of 'columns', 'breast-cancer', 'digits', 'clicks'"),
        (["demo", "clicks", "--rate", "10"], "--rate: not for the demonstration clicks"),
        (["--set", "worker.http_port=1", "demo"], "does not accept --set"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_the_example_of_the_closure_is_a_chain_where_there_is_one() -> None:
    core = Closure()
    names = ("a", "b", "c", "d", "e")
    core.process(ItemBlock("s", names, (Table("x", np.eye(5, dtype=np.float32)),), time_ms=0), Origin(0))
    assert chained_pair(core, ["a", "b"]) is None
    for offset, (left, right) in enumerate([("a", "b"), ("c", "d"), ("d", "e")], 1):
        core.process(Relation("s", left, right, similar=True, time_ms=1), Origin(offset))
    assert chained_pair(core, ["a", "b", "x"]) == ("a", "b")
    assert chained_pair(core, names) == ("c", "e")
