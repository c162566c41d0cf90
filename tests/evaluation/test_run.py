"""Whole experiments: resumed, in parallel, with other data; always the same bytes for the same question."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.experiment.plan import Contender, GridChoice, Measuring, Plan, grid
from kinstream.evaluation.experiment.splits import InOrder, Scaling
from kinstream.evaluation.runner import run as running
from kinstream.evaluation.runner.pool import run_all
from kinstream.evaluation.runner.run import RESULT, TIMES, evaluate
from kinstream.evaluation.runner.store import CELLS
from kinstream.streams.errors import SettingsError
from tests.evaluation.plans import ONE_PASS, blobs, contenders, plan

DATA = (blobs(), blobs("more", 70, 3, 1))


class Interrupted(Exception):
    """In the place of Ctrl-C, or of a machine that goes down."""


def run(folder: Path, given: Plan | None = None, data: tuple[Any, ...] = DATA, **options: Any) -> bytes:
    evaluate(given or plan(), data, folder, **options)
    return (folder / RESULT).read_bytes()


def cells(folder: Path) -> set[str]:
    return {path.name for path in (folder / CELLS).iterdir()}


@pytest.mark.parametrize("after", [0, 1, 7, 17])
def test_an_interrupted_experiment_ends_in_the_same_bytes_and_repeats_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    whole = run(tmp_path / "whole")

    def stop(done: int, all_: int) -> None:
        if done == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        evaluate(plan(), DATA, tmp_path / "cut", progress=stop)
    assert not (tmp_path / "cut" / RESULT).exists()
    assert len(cells(tmp_path / "cut")) == after
    ran = []

    def counted(plan: Plan, data: Any, missing: Any, jobs: int) -> Any:
        ran.extend(missing)
        return run_all(plan, data, missing, jobs)

    monkeypatch.setattr(running, "run_all", counted)
    assert run(tmp_path / "cut") == whole
    assert len(ran) == 18 - after
    assert run(tmp_path / "cut") == whole
    assert len(ran) == 18 - after


#: Ctrl-C while the pool is asked for what has ended. Processes of the pool are those of this one.
INTERRUPTED = """
import signal, sys
from pathlib import Path
from kinstream.evaluation.runner import pool
from kinstream.evaluation.runner.run import evaluate
from tests.evaluation.plans import blobs, plan

signal.signal(signal.SIGINT, signal.default_int_handler)
usual, ended = pool.wait, []

def waited(*arguments):
    signal.raise_signal(signal.SIGINT)
    ended.append(usual(*arguments))
    return ended[-1]

pool.wait = waited
try:
    evaluate(plan(), (blobs(), blobs("more", 70, 3, 1)), Path(sys.argv[1]), jobs=2)
except KeyboardInterrupt:
    print(len(ended))
"""


def test_an_interruption_in_the_midst_of_the_pools_work_comes_after_it(tmp_path: Path) -> None:
    """Inside, it would leave locks of futures closed, and the pool would wait for those for good."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_cell_that_was_written_in_part_is_run_again(tmp_path: Path) -> None:
    whole = run(tmp_path)
    damaged = sorted((tmp_path / CELLS).iterdir())[4]
    damaged.write_text(damaged.read_text()[:100])
    assert run(tmp_path) == whole


def test_more_of_an_experiment_takes_over_what_is_finished(tmp_path: Path) -> None:
    run(tmp_path)
    before = cells(tmp_path)
    more = Contender("copml", "copml", ONE_PASS)
    run(tmp_path, plan(contenders=(*contenders(), more), splits=4))
    assert cells(tmp_path) > before
    assert len(cells(tmp_path)) == 2 * 4 * 4


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"scaling": Scaling("zscore")},
        {"measuring": Measuring(neighbours=3)},
        {"splitter": InOrder(3, 0.2)},
        {"choice": GridChoice(folds=3)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_nothing_of_another_question_is_taken_over(tmp_path: Path, changed: dict[str, Any]) -> None:
    run(tmp_path)
    run(tmp_path, plan(**changed))
    assert len(cells(tmp_path)) == 2 * 18


@pytest.mark.long
def test_nothing_of_other_rows_is_taken_over(tmp_path: Path) -> None:
    first = run(tmp_path)
    changed = blobs()
    changed.tables["x"][17, 2] += 1.0
    assert run(tmp_path, data=(changed, DATA[1])) != first
    assert len(cells(tmp_path)) == 9 + 18


def test_a_result_says_what_was_counted_and_measured(tmp_path: Path) -> None:
    result = evaluate(plan(), DATA, tmp_path)
    assert json.loads((tmp_path / RESULT).read_text()) == result
    assert [(c["data"], c["split"], c["metric"]) for c in result["cells"]] == [
        (data, split, metric)
        for data in ("blobs", "more")
        for split in range(3)
        for metric in ("euclidean", "opml", "lego")
    ]
    for cell in result["cells"]:
        counts, curve = cell["counts"], cell["curve"]
        assert curve["mistakes"][-1] == counts["mistakes"]
        assert curve["utilised"][-1] == counts["utilised"]
        assert cell["measures"]["mistake_rate"] == counts["mistakes"] / counts["scored"]
        assert {"error", "macro_f1", "auc", "map", "recall_at_1", "precision_at_10"} <= set(cell["measures"])
        assert ("utilisation" in cell["measures"]) == (cell["metric"] != "euclidean")
    opml = [cell for cell in result["cells"] if cell["metric"] == "opml"]
    assert all(len(cell["tried"]) == 2 for cell in opml)
    for cell in opml:
        best = min(cell["tried"], key=lambda tried: tried["score"])
        assert cell["settings"] == best["settings"]
    times = json.loads((tmp_path / TIMES).read_text())
    assert len(times) == 18 and all(t["per_constraint_us"]["p99"] > 0 for t in times)
    assert "seconds" not in (tmp_path / RESULT).read_text()


def test_settings_are_chosen_without_a_look_at_the_test_rows(tmp_path: Path) -> None:
    """Other labels of the test rows change what is measured, and nothing that is chosen or learned."""
    given = plan(contenders=(contenders()[1],), splits=1, splitter=InOrder(1, 0.3))
    data = blobs()
    first = evaluate(given, [data], tmp_path / "a")["cells"][0]
    labels = data.labels.copy()
    labels[-27:] = (labels[-27:] + 1) % 3
    other = evaluate(given, [replace(data, labels=labels)], tmp_path / "b")["cells"][0]
    for name in ("settings", "tried", "counts", "curve"):
        assert first[name] == other[name]
    assert first["measures"]["error"] != other["measures"]["error"]


@pytest.mark.parametrize("by", ["error", "map", "mistakes"])
def test_each_way_to_choose_takes_the_least_score(tmp_path: Path, by: str) -> None:
    given = plan(contenders=(contenders()[1],), splits=2, choice=GridChoice(by, 2, limit=20))
    for cell in evaluate(given, [DATA[0]], tmp_path)["cells"]:
        scores = [tried["score"] for tried in cell["tried"]]
        assert all(np.isfinite(scores))
        assert cell["settings"] == cell["tried"][int(np.argmin(scores))]["settings"]


def test_an_error_names_the_metric_the_data_and_the_split(tmp_path: Path) -> None:
    one = blobs("tiny", 1)
    with pytest.raises(SettingsError, match=r"euclidean on tiny, split 0: .*leave a part empty"):
        evaluate(plan(splits=1), [one], tmp_path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: plan(contenders=()), "nothing to evaluate"),
        (lambda: plan(contenders=(*contenders(), contenders()[0])), "two metrics have the name 'euclidean'"),
        (lambda: plan(splits=0), "splits must be at least 1"),
        (
            lambda: plan(contenders=(Contender("a", "opml", ONE_PASS, {"gama": 1}),)),
            "a: opml has no setting gama",
        ),
        (
            lambda: plan(contenders=(Contender("a", "opml", ONE_PASS, grid=grid({"gamma": [-1]})),)),
            "a: gamma",
        ),
        (lambda: plan(contenders=(Contender("a", "opml", Built("random-pairs")),)), "learns from triplets"),
        (lambda: GridChoice("luck"), "not by 'luck'"),
        (lambda: Measuring(("speed",)), "measures are"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_begins(make: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        make()


def test_two_data_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="different names"):
        evaluate(plan(), [blobs(), blobs()], tmp_path)
