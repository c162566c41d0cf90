"""`kinstream demo`, the command behind `make run`: it ends by itself, again and again, and Ctrl-C ends it too."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("KAFKA_", "KINSTREAM_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", "demo", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def of_folder(folder: Path) -> list[psutil.Process]:
    """Processes that the demonstration in that folder started."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.info["cwd"] == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def ended(process: subprocess.Popen[str], seconds: float = 400.0) -> str:
    """What a demonstration has printed at its end; one that does not end is killed with all of its processes."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        if process.poll() is None:
            demo = psutil.Process(process.pid)
            for one in [*demo.children(recursive=True), demo]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.communicate()


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob(".kinstream/demo/logs/*.log")))


def check_summary(output: str) -> None:
    for word in ("5-NN error", "Checkpoints:"):
        assert word in output
    # All that anybody can do without learning is beside what was learned.
    for row in ("euclidean", "cosine", "euclidean, zscore", "cosine, zscore", "euclidean, minmax"):
        assert re.search(rf"^ *{row} +0\.\d+", output, re.M), row
    # Of the summary: error, constraints, mistakes.
    learned = re.findall(r"^ *(mixture|opml) +(0\.\d+) +(\d+) +(\d+)", output, re.M)
    assert {name for name, *_ in learned} == {"mixture", "opml"}
    assert all(int(seen) > 100 for _, _, seen, _ in learned)
    assert "models export classification --learner mixture --checkpoints" in output


@pytest.mark.timeout(900)
def test_it_ends_by_itself_and_stays_up_when_told_to_in_one_folder_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    process = demo(tmp_path, "--rate", "5000", "--repeat", "1")
    output = ended(process)
    assert process.returncode == 0, output + logs(tmp_path)
    assert of_folder(tmp_path) == []
    check_summary(output)
    process = demo(tmp_path, "--rate", "5000", "--repeat", "1", "--keep-running")
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if "Ctrl-C" in line:
            break
    check_summary(output)
    address = re.search(r"Prometheus: *(\S+)", output)
    assert address is not None, output + logs(tmp_path)
    with urllib.request.urlopen(address[1], timeout=5) as answer:
        assert b"kinstream_constraints_seen_total" in answer.read()
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert of_folder(tmp_path) == []


def test_it_needs_no_torch() -> None:
    """Extras are not installed by `make run`."""
    script = (
        "import sys, tomllib; from kinstream.cli.demo.descriptions import columns\n"
        "from kinstream.learners.warm_up import warm_up\n"
        "sys.modules['torch'] = None\n"
        "for own in tomllib.loads(columns().settings)['learners'].values():\n"
        "    warm_up(own.pop('kind'), {name: value for name, value in own.items() if name != 'from'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(200)
@pytest.mark.parametrize("moment", ["starting", "running"])
def test_ctrl_c_ends_it_within_ten_seconds(tmp_path: Path, moment: str) -> None:
    process = demo(tmp_path, "--rate", "50")
    wanted = tmp_path / ".kinstream/demo/logs" / ("metrics.log" if moment == "starting" else "producer.log")
    limit = time.monotonic() + 120
    while not wanted.exists():
        assert time.monotonic() < limit and process.poll() is None, logs(tmp_path)
        time.sleep(0.05)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 130
    assert of_folder(tmp_path) == []
