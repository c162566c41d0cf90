"""`kinstream demo memory`: its agent by hand, and the whole of it in a browser: what is cited moves up."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.cli.demo.memory.agent import CITED, QUESTIONS, Agent
from kinstream.cli.demo.memory.run import ROUNDS
from kinstream.cli.demo.memory.store import DocumentationStore
from kinstream.cli.demo.search.rankings import TOP, Rankings
from kinstream.search.client.client import FoundList
from kinstream.search.queries.model import QueryModel
from kinstream.search.stores.base import Asked
from kinstream.streams.signals import ADAPTED, SIMILARITY, TEXT
from tests.cli.search.browser import ask, browser, demonstration, names, teach, text, wait
from tests.cli.search.material import FUNCTIONS, material
from tests.cli.test_demo import of_folder


class Fake:
    """A client whose lists put what was cited first."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.given: list[tuple[str, str, str]] = []

    def search(self, vector: Any, by_text: str, k: int, **more: Any) -> FoundList:
        self.asked.append(by_text)
        cited = [item for list_id, item, _ in self.given if list_id == by_text]
        rest = [str(row) for row in range(FUNCTIONS) if str(row) not in cited]
        found = [
            {"id": item, "value": -float(at)} for at, item in enumerate([*dict.fromkeys(cited), *rest][:k])
        ]
        return FoundList(by_text, found, self)  # type: ignore[arg-type]

    def feedback(self, list_id: str, item: str, action: str) -> None:
        self.given.append((list_id, item, action))


def test_the_agent_cites_what_is_shown_and_finds_it_higher_in_the_next_round() -> None:
    made, client = material(), Fake()
    made.tested[:2] = (3, 20)
    agent = Agent(made, client)  # type: ignore[arg-type]
    number = len(agent.rows)
    for _ in range(2 * number):
        agent.turn()
    assert agent.rounds == 2 and agent.asked == 2 * number
    for row in agent.rows:
        shown = row < TOP
        assert (agent.first[row], agent.last[row]) == ((row, 0) if shown else (TOP, TOP))
        name = made.functions[row].query
        assert client.given.count((name, str(row), CITED)) == 2 * shown * agent.rows.count(row)
    # Each round asks all, in another order.
    first, second = client.asked[:number], client.asked[number:]
    assert sorted(first) == sorted(second) and first != second
    assert agent.moved() == (3, 4, 1)
    assert agent.share == 1 / len(agent.last)


def test_the_store_finds_candidates_by_vector_and_by_text() -> None:
    made = material()
    store = DocumentationStore(made)
    (hits,) = store.search(made.queries[5:6], 3, None).hits
    wanted = np.argsort(-(made.items @ made.queries[5]), kind="stable")[:3]
    assert [hit.id for hit in hits] == [str(row) for row in wanted]
    query = made.functions[7].query
    (found,) = store.candidates([Asked(made.queries[5], -made.queries[5], query)], 2, None).found
    far = np.argsort(made.items @ made.queries[5], kind="stable")[:2]
    assert {*map(str, far), "7"} <= set(found.ids) and len(found.ids) <= 4
    rows = [int(one) for one in found.ids]
    np.testing.assert_allclose(found.signals[SIMILARITY], (made.items @ made.queries[5])[rows], rtol=1e-5)
    np.testing.assert_allclose(found.signals[ADAPTED], -found.signals[SIMILARITY], rtol=1e-5)
    np.testing.assert_allclose(found.signals[TEXT], made.text([query])[0][rows])
    (by_text,) = store.candidates([Asked(None, None, query)], 2, None).found
    assert set(by_text.signals) == {TEXT} and "7" in by_text.ids


def test_the_last_ranking_is_what_the_service_has_shown() -> None:
    made = material()
    rankings = Rankings(made)
    asked = rankings.asked(made.functions[20].query)
    assert asked is not None
    found = rankings.all(asked, QueryModel("search"), {4: 2.5, 20: 1.5})
    assert [one["row"] for one in found["learned"]][:2] == [4, 20]
    assert found["learned"][0]["score"] == 2.5 and found["answer"][2] == 2
    assert len({one["row"] for one in found["learned"]}) == TOP


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_person_sees_what_was_cited_move_up(tmp_path: Path) -> None:
    with browser() as driver, demonstration(tmp_path, "--keep-running", name="memory") as run:
        driver.get(run.url)
        run.until("Search yourself", 600.0)
        shares = [int(one) for one in re.findall(rf"(\d+) % of {QUESTIONS} answers come first", run.output)]
        print(run.output)
        assert len(shares) == ROUNDS and shares[-1] >= shares[0] + 5
        assert re.search(r"its answer, [\w.]+, rose from place (\d+|beyond 10) to \d+\.", run.output)
        wait(lambda: text(driver, "phase").startswith("Learned"), 90.0, lambda: text(driver, "phase"))
        assert text(driver, "title") == "A memory that learns what was cited"
        assert 0.0 < float(text(driver, "ndcg")) < 1.0
        # The last of a list goes up once it was cited.
        ask(driver, "smallest eigenvalues of a sparse matrix")
        chosen = names(driver, "learned")[-1]
        for _ in range(6):
            teach(driver, chosen)
            if names(driver, "learned").index(chosen) < 9:
                break
        assert names(driver, "learned").index(chosen) < 9
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0
    assert "Traceback" not in run.output
    assert of_folder(tmp_path) == []
