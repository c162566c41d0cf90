"""The page about running with your own Kafka is walked: its settings, its commands, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.terminals import walk
from tests.docs.test_tutorial import free_port
from tests.kafka.broker import KafkaBroker

PAGE = ROOT / "docs" / "running.md"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_from_the_first_check_to_a_replay_that_compares_equal(kafka: KafkaBroker, tmp_path: Path) -> None:
    # What the page leaves to its reader, or what may be taken on this machine.
    variables = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
        "KINSTREAM_TOPICS__PREFIX": "page-running",
        "KINSTREAM_WORKER__HTTP_PORT": str(free_port()),
    }
    with walk(PAGE, tmp_path, variables) as page:
        page.write_files()
        check, create = page.commands("check").splitlines()
        before = page.run(check)
        assert before.returncode == 1 and "kinstream topics create" in before.stdout, before
        page.done(create)
        log = page.start("up")
        page.until(lambda: log.read_text().count(": ready after") == 3, "three agents are ready")
        page.close()
        for number, command in enumerate(page.commands("workers").splitlines()):
            page.start(f"worker-{number}", command)
        page.until(lambda: page.run(check).returncode == 0, "nothing is left to mend")
        produce, status, curl = page.commands("produce").splitlines()
        page.done(produce)
        page.until(lambda: page.run(status).returncode == 0, "every agent runs")
        exposed = page.done(curl.replace("9108", variables["KINSTREAM_WORKER__HTTP_PORT"]))
        assert 'kinstream_consumer_lag_records{agent="metrics"' in exposed, exposed
        models = page.commands("models")
        (listed,) = (line for line in models.splitlines() if line.endswith("models list"))
        page.until(lambda: "digits" in page.done(listed), "a model is announced")
        # The builder's own checkpoint may come some seconds after that.
        page.until(lambda: page.run(models).returncode == 0, "the replay compares equal")
    assert (tmp_path / "digits.npz").exists()
