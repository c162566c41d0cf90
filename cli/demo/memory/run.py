"""Runs the demonstration of the memory: the search, with a service and an agent in place of clicks and labels."""

from __future__ import annotations

import logging
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

from kinstream.cli.demo.memory.agent import QUESTIONS, Agent
from kinstream.cli.demo.memory.store import DocumentationStore, served
from kinstream.cli.demo.search.run import DEADLINE_SECONDS, Demonstration, PageState, run_with
from kinstream.cli.demo.search.traffic import SPACE
from kinstream.search.client.client import FeedbackRefused, SearchClient, ServiceBusy
from kinstream.streams.settings import Settings

FOLDER: Final = Path(".kinstream/demo-memory")
#: Rounds of the agent, and citations that a click on the page stands for: one would change too little to see.
ROUNDS: Final = 8
TIMES: Final = 16
#: Between two questions, so that a round takes as long as the window of a list.
PAUSE_SECONDS: Final = 0.03
#: After which a citation has been learned: the window of its list, the builder, the learner.
AFTER_SECONDS: Final = 12.0
_SETTINGS: Final = """\
# The settings of `kinstream demo memory`. You can start your own settings from them.
gate_key = "{key}"

[checkpoints]
url = "{{checkpoints}}"
interval_seconds = 0.25

[worker]
together = false
shutdown_seconds = 6.0

[builders.clicks]
kind = "clicks"
rules = ["click-list"]

# Lists that the service has shown, and what was done with them.
[sources.feedback]
topic = "kinstream.feedback"
preset = "feedback"
window_minutes = 0.1

# Half and half with BM25 at first; what was cited for a question is remembered.
[learners.search]
kind = "ranking"
from = ["clicks"]
start = {{{{ similarity = 0.5, text = 0.5 }}}}
remember = 10000
"""
#: The service runs in this process, since its store is this process's memory. Yours is `kinstream serve`.
_SERVICE: Final = {
    "http_port": 0,
    "spaces": {
        SPACE: {
            "learner": "search",
            "backend": "memory",
            "collection": "documentation",
            "text": "text",
            "record": True,
        }
    },
}
#: What the page says in place of the words of the search.
_WORDS: Final = {
    "title": "A memory that learns what was cited",
    "measure": f"Of {QUESTIONS} questions, the answer comes first in",
    "last": "Learned from citations",
}


class MemoryState(PageState):
    """What the page asks for; its last ranking and its clicks are those of the service."""

    agent: Agent | None = None

    def state(self) -> dict[str, Any]:
        return super().state() | {"words": _WORDS, "chips": "Questions of the agent:"}

    def search(self, text: str) -> dict[str, Any]:
        rankings, adapter, agent = self.rankings, self.adapter, self.agent
        if rankings is None or adapter is None or agent is None:
            raise ValueError("The service is still starting.")
        asked = rankings.asked(text)
        if asked is None:
            raise ValueError("The embedder knows no part of these words.")
        try:
            return rankings.all(asked, adapter.current, agent.answers(asked))
        except ServiceBusy as error:
            raise ValueError(str(error)) from None

    def click(self, text: str, rows: list[int], clicked: int) -> dict[str, Any]:
        rankings, agent = self.rankings, self.agent
        asked = None if rankings is None else rankings.asked(text)
        if agent is None or asked is None or clicked not in rows:
            raise ValueError("This click names no list that was shown.")
        times = agent.cite(asked, clicked, TIMES)
        if not times:
            raise ValueError("The service does not show it: only what is shown can be cited.")
        return {"people": times, "after": AFTER_SECONDS}


class MemoryDemonstration(Demonstration):
    """From embedding to the last round of the agent."""

    folder = FOLDER
    compiled = ("ranking", "clicks")

    def show(self, settings: Settings) -> int:
        material = self.prepare(settings)
        traffic = self.shown.traffic
        if (
            material is None
            or traffic is None
            or not self.stream("Streaming the catalogue", traffic.catalogue())
        ):
            return self.status
        in_process = _with_service(settings)
        url = self.stack.enter_context(served(in_process, DocumentationStore(material)))
        agent = Agent(material, SearchClient(url, SPACE))
        assert isinstance(self.shown, MemoryState)
        self.shown.agent = agent
        self.line(f"The service: {url}")
        self.say(f"The agent asks {QUESTIONS} questions, again and again, and cites what answers them")
        if not self.until(lambda: _answers(agent)):
            return self.status
        shares = []
        while agent.rounds < ROUNDS:
            before = agent.rounds
            if not self._turn(agent, PAUSE_SECONDS):
                return self.status
            if agent.rounds > before:
                self.allow(DEADLINE_SECONDS)
                self.shown.ndcg.append(agent.share)
                shares.append(agent.share)
                self.line(
                    f"  round {agent.rounds}: {100 * shares[-1]:.0f} % of {QUESTIONS} answers come first"
                )
        row, first, last = agent.moved()
        self.line(
            f"\n{100 * shares[0]:.0f} % -> {100 * shares[-1]:.0f} % of the answers come first after {agent.cited} "
            f"citations: nothing was embedded or indexed again.\n{material.functions[row].query!r}: its answer, "
            f"{material.functions[row].name}, rose from place {_place(first)} to {last}."
        )
        self.say("Learned: ask, click what answers, and see it rise")
        return 0

    def serve(self) -> int:
        """The agent goes on, so that the log does: a list is learned when the log is later by its window."""
        agent = self.shown.agent if isinstance(self.shown, MemoryState) else None
        self.allow(float("inf"))
        while agent is not None and self._turn(agent, 0.2):
            pass
        return 0 if self.stopping.is_set() else self.status

    def measure(self) -> None:
        """The figure is the agent's, by rounds."""

    def _turn(self, agent: Agent, wait: float) -> bool:
        """One question, if nothing has ended the demonstration."""
        if not self.goes_on() or self.stopping.wait(wait):
            return self.goes_on()
        try:
            agent.turn()
        except (ServiceBusy, FeedbackRefused):
            # A machine that is very busy: the question comes again.
            return True
        return True


def _with_service(settings: Settings) -> Settings:
    """The settings with the section of the service, which the agents do not have."""
    given = settings.model_dump(exclude_unset=True)
    return Settings.model_validate(given | {"serve": _SERVICE})


def _answers(agent: Agent) -> bool:
    try:
        agent.turn()
    except ServiceBusy:
        return False
    return True


def _place(place: int) -> str:
    return str(place) if place <= 10 else "beyond 10"


def run(*, keep_running: bool, port: int) -> NoReturn:
    """Run it to its end, or until Ctrl-C, and end this process. Parameters as of the search's."""
    # The service is in this process.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    text = _SETTINGS.format(key=secrets.token_hex(16))
    with ExitStack() as stack:
        run_with(MemoryDemonstration, MemoryState(), text, stack, keep_running=keep_running, port=port)
