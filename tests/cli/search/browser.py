"""The demonstration of search in a process, and its page in a browser without a window.

python -m tests.cli.search.browser draws docs/pictures/search.png and prints the figures of its caption. The query is,
of all held-out ones, one whose answer learning moves furthest to the first place.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np

from kinstream.cli.demo.search.material import SEED, TESTED
from kinstream.producers.simulated.documentation import searched
from tests.cli.test_demo import ROOT, ended
from tests.deploy.monitoring.programs import program

PICTURE: Final = ROOT / "docs" / "pictures" / "search.png"
SIZE: Final = (1440, 990)
#: Of the picture: the first few results say enough.
LOW: Final = (1440, 740)
_URL: Final = re.compile(r"Page: (http://\S+)")


class Demonstration:
    """A run of `kinstream demo search` or another with a page; `output` is what it has printed so far."""

    def __init__(self, folder: Path, *options: str, name: str = "search") -> None:
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("KAFKA_", "KINSTREAM_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kinstream.cli.main", "demo", name, *options],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def until(self, text: str, seconds: float = 300.0) -> None:
        """Wait until it has printed a text."""
        wait(lambda: text in self.output or self.process.poll() is not None, seconds, lambda: self.output)
        assert text in self.output, self.output

    @property
    def url(self) -> str:
        """Where its page is."""
        self.until("Page: ", 60.0)
        found = _URL.search(self.output)
        assert found is not None, self.output
        return found[1]

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit status."""
        status = self.process.wait(seconds)
        self._reading.join(seconds)
        return status


@contextmanager
def demonstration(folder: Path, *options: str, name: str = "search") -> Iterator[Demonstration]:
    """A run that is over at the end of the block, whatever happens in it."""
    run = Demonstration(folder, *options, name=name)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                ended(run.process, 0.0)


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, by selenium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(option)
    options.add_argument(f"--window-size={SIZE[0]},{SIZE[1]}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def wait(condition: Callable[[], Any], seconds: float, told: Callable[[], object]) -> None:
    """Until a condition holds; an AssertionError with what is `told` if it does not within that time."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, told()
        time.sleep(0.1)


def ask(driver: Any, query: str) -> None:
    """Type a query, and wait for its answers."""
    field = driver.find_element("id", "query")
    field.clear()
    field.send_keys(query + "\n")
    wait(lambda: names(driver, "learned"), 90.0, lambda: driver.page_source)


def names(driver: Any, side: str) -> list[str]:
    """The names in a ranking: `embedded`, `hybrid` or `learned`."""
    script = "return [...document.querySelectorAll(`#${arguments[0]} .name`)].map((one) => one.textContent)"
    return list(driver.execute_script(script, side))


def press(driver: Any, name: str) -> None:
    """Click the learned item of that name, in one step: a new model may change the list at any time."""
    script = """[...document.querySelectorAll("#learned li")]
        .find((one) => one.querySelector(".name").textContent === arguments[0]).querySelector("button").click()"""
    driver.execute_script(script, name)


def teach(driver: Any, name: str) -> None:
    """Click the learned item of that name, and wait for the note that a model has learned it."""
    before = text(driver, "note")
    press(driver, name)
    wait(
        lambda: text(driver, "note") != before and "has learned your click" in text(driver, "note"),
        120.0,
        lambda: text(driver, "note"),
    )


def text(driver: Any, name: str) -> str:
    """The text of an element by its id."""
    return str(driver.find_element("id", name).text)


def held_out() -> list[str]:
    """The queries that the demonstration never sends, in its order."""
    functions = searched()
    order = np.random.default_rng([SEED, 1]).permutation(len(functions))
    return [functions[row].query for row in order[:TESTED].tolist()]


def places(url: str, query: str) -> list[int]:
    """Where the answer of a held-out query stands: as embedded, with BM25, and after learning."""
    with urlopen(f"{url}/search?q={quote(query)}", timeout=30) as reply:
        return list(json.load(reply)["answer"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, demonstration(Path(folder), "--keep-running") as run:
        run.until("Search yourself")
        queries = held_out()
        found = np.array([places(run.url, query) for query in queries])
        embedded, before, after = found.T
        chosen = int(np.argmax(np.where((after == 1) & (embedded > 10), before, 0)))
        with browser() as driver:
            driver.set_window_size(*LOW)
            driver.get(run.url)
            ask(driver, queries[chosen])
            wait(lambda: text(driver, "phase").startswith("Learned"), 30.0, lambda: driver.page_source)
            driver.save_screenshot(str(PICTURE))
    print(f"{PICTURE}: {queries[chosen]!r} is at places {found[chosen].tolist()}")
    for name, hits in (("first", found == 1), ("among the first ten", found <= 10)):
        print(f"{name}: {' -> '.join(map(str, hits.sum(axis=0)))} of {len(found)} answers")
    print(f"{(after < before).sum()} rise, {(after > before).sum()} fall")
    print(next(line for line in run.output.splitlines() if line.startswith("NDCG@10") and "->" in line))


if __name__ == "__main__":
    main()
