"""`kinstream demo search` as a user sees it: figures in the terminal, the page in a browser, a learned click."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.cli.search.browser import ask, browser, demonstration, names, teach, text, wait
from tests.cli.test_demo import of_folder

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_it_learns_from_clicks_and_labels_and_leaves_no_process(tmp_path: Path) -> None:
    with demonstration(tmp_path) as run:
        assert run.wait(300.0) == 0, run.output
    embedded, hybrid, clicks, labels = (
        float(one)
        for pattern in (
            r"([\d.]+) as embedded,",
            r"([\d.]+) with BM25, half and half",
            r"([\d.]+) after 6,128 lists",
            r"([\d.]+) after [\d,]+ labels",
        )
        for one in re.findall(pattern, run.output)
    )
    assert hybrid > 1.05 * embedded, run.output
    assert clicks > 1.01 * hybrid, run.output
    assert labels > clicks, run.output
    assert of_folder(tmp_path) == []


def test_a_person_searches_clicks_and_sees_what_was_learned(tmp_path: Path) -> None:
    with browser() as driver, demonstration(tmp_path, "--keep-running") as run:
        driver.get(run.url)
        run.until("Search yourself")
        wait(lambda: text(driver, "phase").startswith("Learned"), 90.0, lambda: text(driver, "phase"))
        assert 0.5 < float(text(driver, "ndcg")) < 0.8
        # All rankings of a typed query, and of one whose answer is known.
        ask(driver, "smallest eigenvalues of a sparse matrix")
        assert {len(names(driver, side)) for side in ("embedded", "hybrid", "learned")} == {10}
        driver.find_element("css selector", "#chips button").click()
        wait(lambda: "the answer is at" in text(driver, "learned-answer"), 90.0, lambda: driver.page_source)
        # The last of the list goes up once it was clicked, and clicked again.
        chosen = names(driver, "learned")[-1]
        for _ in range(6):
            teach(driver, chosen)
            assert chosen in text(driver, "note") and "Its score went from" in text(driver, "note")
            if names(driver, "learned").index(chosen) < 9:
                break
        assert names(driver, "learned").index(chosen) < 9
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0
    assert "Traceback" not in run.output
    assert of_folder(tmp_path) == []


def test_ctrl_c_while_it_embeds_ends_it(tmp_path: Path) -> None:
    with demonstration(tmp_path) as run:
        run.until("functions of numpy, scipy and scikit-learn")
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert "Traceback" not in run.output
    assert of_folder(tmp_path) == []
