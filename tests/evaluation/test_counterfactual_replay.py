"""`kinstream evaluate counterfactual --learner`: each list is judged by the learner from before it was learned."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from kinstream.cli.main import cli
from kinstream.learners.registry import create
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.search.queries.model import QueryModel
from kinstream.streams.errors import KinstreamError, SettingsError
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.values import Click
from kinstream.streams.topics import partition_of
from tests.docs.pages import ROOT, blocks
from tests.evaluation.drafted_log import DRAFTED, LISTS, NEW, SIZE, SPACE, DraftedLog
from tests.replay.conftest import MakeSystem
from tests.replay.system import EVENTS, System

#: Every list moves this learner.
SETTINGS = {"scaler": "unit", "unit": "published", "aggressiveness": 0.004}
BUILDERS = {
    "clicks": {"kind": "clicks", "rules": ["click-skip-above"]},
    "pairs": {"kind": "clicks", "rules": ["last-click-skip-above"]},
}
LEARNERS = {
    "taste": {"kind": "oasis", "from": ["clicks"], "unranked_lists": True, "held_out": 0.0, **SETTINGS},
    "distance": {"kind": "opml", "from": ["pairs"], "unranked_lists": True},
}
CONFIG = """
[checkpoints]
url = "{root}"
[topics]
partitions = 2
[builders.clicks]
kind = "clicks"
rules = ["click-skip-above"]
[builders.pairs]
kind = "clicks"
rules = ["last-click-skip-above"]
[learners.taste]
kind = "oasis"
from = ["clicks"]
unranked_lists = true
held_out = 0.0
scaler = "unit"
unit = "published"
aggressiveness = 0.004
[learners.distance]
kind = "opml"
from = ["pairs"]
unranked_lists = true
"""
PLACES = SIZE // 2
Commands = Callable[..., Result]


@pytest.fixture
def drafted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftedLog:
    return DraftedLog(tmp_path)


@pytest.fixture
def system(make_system: MakeSystem, drafted: DraftedLog) -> System:
    running = make_system(builders=BUILDERS, learners=LEARNERS)
    for message in drafted.log.read(EVENTS, 0, 0):
        running.log.append(EVENTS, message.key, message.value)
    running.run_builders()
    return running


@pytest.fixture
def command(system: System, drafted: DraftedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    drafted.log = system.log
    drafted.connect(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kinstream.toml").write_text(CONFIG.format(root=system.root.as_posix()))

    def run(*arguments: str, root: Sequence[str] = ()) -> Result:
        words = [*root, "evaluate", "counterfactual", "--space", SPACE, *arguments]
        found = CliRunner().invoke(cli, words)
        if isinstance(found.exception, KinstreamError):
            raise found.exception
        return found

    return run


def judged(command: Commands, *arguments: str, root: Sequence[str] = ()) -> dict[str, Any]:
    found = command("--model", "drafted.npz", *arguments, "--json", root=root)
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def by_name(answer: dict[str, Any]) -> dict[str, Any]:
    return {one["model"]: one for one in answer["models"]}


class Walk:
    """The log from top to bottom, with a builder and a learner of its own: what the learner scores before it learns.

    Parameters
    ----------
    late : let it learn each list first, as must not be.
    first : offset of the first list that counts.
    constraints : only lists from the first that says something to the last.
    """

    def __init__(
        self,
        drafted: DraftedLog,
        *,
        late: bool = False,
        first: int = 0,
        constraints: bool = False,
        **settings: Any,
    ) -> None:
        taste = QueryModel.from_file(drafted.files[NEW])
        builder = Clicks(rules=("click-skip-above",))
        learner: Any = create("oasis", **{**SETTINGS, **settings})
        naive, expected, speak = [], [], []
        for message in drafted.log.read(EVENTS, partition_of(SPACE, 2), 0):
            record = decode_event(message.value)
            before = None if learner.dimension is None else np.array(learner.W)
            made = False
            for block in builder.process(
                record, Origin(offset=message.offset, append_ms=message.timestamp_ms)
            ).blocks:
                learner.learn(block)
                made = True
            if not isinstance(record, Click) or message.offset < first:
                continue
            speak.append(made)
            after = None if learner.dimension is None else np.array(learner.W)
            query = record.query_vector[0].vectors[0]
            W: NDArray[Any] | None = after if late else before
            own = drafted.items @ (query if W is None else query @ W)
            best = [f"doc {row}" for row in np.argsort(-own)[:PLACES]]
            wanted = {f"doc {row}" for row in np.argsort(-(drafted.items @ taste.map(query)))[:SIZE]}
            clicked = {click.item for click in record.clicks}
            naive.append(len(clicked & set(best)))
            expected.append(
                sum((0.8 if item in wanted else 0.05) / place for place, item in enumerate(best, 1))
            )
        ends = np.flatnonzero(speak)
        part = slice(ends[0], ends[-1] + 1) if constraints else slice(None)
        self.lists = len(naive[part])
        self.naive, self.truth = float(np.mean(naive[part])), float(np.mean(expected[part]))


@pytest.mark.long
@pytest.mark.parametrize("origin", ["events", "constraints"])
def test_each_list_is_judged_before_it_is_learned(
    command: Commands, drafted: DraftedLog, origin: str
) -> None:
    answer = judged(command, "--learner", "taste", "--from", origin)
    constraints = origin == "constraints"
    walk, late = (Walk(drafted, constraints=constraints, late=late) for late in (False, True))
    assert late.naive != walk.naive
    found = by_name(answer)
    assert list(found) == ["un-adapted", str(DRAFTED), "taste"]
    assert found["taste"]["naive"] == pytest.approx(walk.naive, abs=1e-12)
    assert found["taste"]["dr"]["low"] < walk.truth < found["taste"]["dr"]["high"]
    assert found["taste"]["dr"]["value"] > found["un-adapted"]["dr"]["value"]
    assert [one["prequential"] for one in answer["models"]] == [False, False, True]
    assert answer["lists"]["used"] == walk.lists and answer["not_judged"] == {}


@pytest.mark.long
def test_another_setting_is_another_model_and_the_same_lists(command: Commands, drafted: DraftedLog) -> None:
    answer = judged(command, "--learner", "taste", root=("--set", "learners.taste.aggressiveness=0.1"))
    plain = judged(command, "--learner", "taste")
    tried = by_name(answer)["taste"]
    assert tried["naive"] == pytest.approx(
        Walk(drafted, constraints=True, aggressiveness=0.1).naive, abs=1e-12
    )
    assert tried["dr"] != by_name(plain)["taste"]["dr"]
    assert by_name(answer)["un-adapted"] == by_name(plain)["un-adapted"]
    assert answer["lists"] == plain["lists"]


@pytest.mark.long
def test_lists_count_from_a_place_and_the_learner_knows_those_before(
    command: Commands, drafted: DraftedLog
) -> None:
    answer = judged(command, "--learner", "taste", "--start", "101", "--from", "events")
    assert answer["lists"]["used"] == LISTS - 100
    late = Walk(drafted, first=101)
    found = by_name(answer)["taste"]
    assert found["naive"] == pytest.approx(late.naive, abs=1e-12)
    assert found["dr"]["low"] < late.truth < found["dr"]["high"]


@pytest.mark.long
def test_the_report_warns_where_support_is_missing_and_names_who_is_not_judged(command: Commands) -> None:
    both = ("--learner", "taste", "--learner", "distance")
    found = command(*both, "--from", "events", "--model", "drafted.npz", "--model", "new.npz")
    assert found.exit_code == 0, found.output
    assert f"{LISTS} drafted lists of {LISTS // 2} people" in found.stdout
    assert "taste: each list by the model from before it was learned" in found.stdout
    assert "distance is not judged: opml" in found.stdout
    assert f"warning: {NEW}: 37% of what it would show could not be shown" in found.stderr


def test_a_replay_without_usable_lists_says_why(command: Commands) -> None:
    with pytest.raises(SettingsError, match=f"lists of two people are needed.*{LISTS} other_model"):
        command("--learner", "taste", "--from", "events")


def test_what_cannot_be_judged_is_refused_before_anything_is_read(
    command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", "")
    with pytest.raises(SettingsError, match="needs a key"):
        command("--learner", "taste", "--model", "drafted.npz")


@pytest.mark.long
def test_the_page_shows_what_is_printed(command: Commands) -> None:
    page = ROOT / "docs" / "evaluating.md"
    lines = next(b.text for b in blocks(page, "sh") if "--learner taste" in b.text).splitlines()
    (shown,) = [b.text for b in blocks(page, "text") if "\ntaste " in b.text]
    found = CliRunner().invoke(cli, shlex.split(lines[0])[1:])
    assert found.exit_code == 0, found.output
    assert shown.strip() in found.stdout
    assert "13% of what it would show" in CliRunner().invoke(cli, shlex.split(lines[1])[1:]).stderr
