"""With `[logs] format = "json"` every line is an object with the fields that docs/operating.md lists."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kinstream.streams.processes import json_lines
from kinstream.streams.processes.json_lines import JsonFormatter, describe_process, fields, within
from kinstream.streams.secrets import remember

_SCRIPT = """
import logging
from kinstream.streams.processes.json_lines import describe_process, fields
from kinstream.streams.processes.log_lines import begin, report, use

begin("INFO")
use("json")
describe_process(application="learner-opml", generation=3)
log = logging.getLogger("kinstream.worker")
log.info("two\\nlines, %s", "\\u00e9")
with fields(topic="t", partition=2):
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("ended")
        report("the command ended", traceback=True)
log.debug("not shown")
for _ in range(3):
    logging.getLogger("aiokafka").critical("away\\nmore")
report("refused")
use("text")
log.info("plain")
report("plain again")
"""


def test_each_record_is_an_object_on_one_line() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60
    ).stderr.splitlines()
    *lines, plain, again = found
    records = [json.loads(line) for line in lines]
    own = {"application": "learner-opml", "generation": 3}
    assert [(r["level"], r["logger"], r["message"]) for r in records] == [
        ("INFO", "kinstream.worker", "two\nlines, é"),
        ("ERROR", "kinstream.worker", "ended"),
        ("ERROR", "kinstream", "the command ended"),
        ("CRITICAL", "aiokafka", "away"),
        ("ERROR", "kinstream", "refused"),
    ]
    for record in records:
        assert own.items() <= record.items()
        assert datetime.fromisoformat(record["time"]).utcoffset() == timedelta(0)
    assert [(r.get("topic"), r.get("partition")) for r in records] == [
        (None, None),
        ("t", 2),
        ("t", 2),
        (None, None),
        (None, None),
    ]
    for record in records[1:3]:
        assert record["traceback"].startswith("Traceback") and "ValueError: a bug" in record["traceback"]
    assert all("traceback" not in record for record in (records[0], *records[3:]))
    assert re.fullmatch(r"[\d-]+ [\d:,]+ INFO kinstream.worker: plain", plain)
    assert again == "kinstream: plain again"


def _line(message: str, *arguments: object) -> dict[str, object]:
    record = logging.LogRecord("x", logging.INFO, "", 1, message, arguments, None)
    found: dict[str, object] = json.loads(JsonFormatter().format(record))
    return found


def test_a_secret_that_json_would_quote_is_hidden() -> None:
    remember('pass"word\\')
    assert _line("%s at s3://user:other@host/x", 'pass"word\\')["message"] == "*** at s3://***@host/x"


def test_a_thread_logs_with_the_partition_of_the_task_that_called_it() -> None:
    async def of(partition: int, pool: ThreadPoolExecutor) -> object:
        with fields(topic="t", partition=partition):
            await asyncio.sleep(0)
            call = within(_line, ("working",))
            return (await asyncio.get_running_loop().run_in_executor(pool, call))["partition"]

    async def run() -> list[object]:
        with ThreadPoolExecutor(1) as pool:
            return await asyncio.gather(*(of(partition, pool) for partition in range(5)))

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]
    assert "partition" not in _line("outside")


def test_a_refused_worker_ends_with_an_object(tmp_path: Path) -> None:
    (tmp_path / "kinstream.toml").write_text('[logs]\nformat = "json"\n')
    command = [sys.executable, "-m", "kinstream.cli.main", "worker", "learner", "x", "--unsupervised"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    (line,) = ended.stderr.splitlines()
    record = json.loads(line)
    assert ended.returncode == 2
    assert record["application"] == "learner-x" and "no [learners.x]" in record["message"]


def test_fields_of_the_process_are_on_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Commands that other tests run in this process describe it, too.
    monkeypatch.setattr(json_lines, "_of_process", {})
    assert "application" not in _line("before")
    describe_process(application="gate")
    assert _line("after")["application"] == "gate"
