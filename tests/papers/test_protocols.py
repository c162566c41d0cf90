"""Every experiment from data to comparison, on tiny made-up sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers import lego_mnist_pairs, oahu_table_3, omdml_small, opml_table_2, opml_table_4
from benchmarks.papers.registry import names, protocol
from benchmarks.papers.shared.comparison import PaperComparison
from benchmarks.papers.shared.data_folder import DataFolder
from benchmarks.papers.shared.feeds import SeedsAndClosure
from benchmarks.papers.shared.protocol import COMPARISON, Protocol, prepare, run
from kinstream.evaluation.experiment.plan import Plan
from kinstream.streams.errors import SettingsError
from tests.papers.made_up_sets import fill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(fill(tmp_path_factory.mktemp("sets")))


def tiny(found: Protocol) -> Protocol:
    """The quick form over fewer constraints and smaller grids."""

    def plan(rows: Any, quick: bool) -> Plan:
        made = found.plan(rows, quick)
        contenders = tuple(replace(one, grid=one.grid[:2], feed=_short(one.feed)) for one in made.contenders)
        return replace(made, contenders=contenders, choice=replace(made.choice, limit=40))

    return replace(found, plan=plan)


def _short(feed: Any) -> Any:
    if isinstance(feed, SeedsAndClosure):
        return replace(feed, seeds=50, derived=50, pool=30)
    return replace(feed, limit=120) if getattr(feed, "limit", None) else feed


def outcome(name: str, folder: DataFolder, out: Path, **given: Any) -> PaperComparison:
    return run(tiny(protocol(name)), folder, out, quick=True, splits=2, **given)


def test_opml_table_2(folder: DataFolder, tmp_path: Path) -> None:
    found = outcome("opml-table-2", folder, tmp_path, only=("iris", "balance", "spect"))
    metrics = [line.metric for line in found.lines if line.data == "iris"]
    assert metrics == ["euclidean", "oasis", "rdml", "pola", "lego", "soml-tg", "opml", "copml"]
    assert {line.metric for line in found.held} == set(opml_table_2.BOUNDED)
    assert {line.data for line in found.held} == {"iris", "balance"}
    assert all(0.0 <= line.mean <= 1.0 and line.n == 2 and line.published for line in found.lines)
    assert (tmp_path / COMPARISON).exists()


def test_the_full_form_of_opml_table_2_has_the_batch_learners_and_their_fits(
    folder: DataFolder, tmp_path: Path
) -> None:
    pytest.importorskip("metric_learn")
    ready = prepare(protocol("opml-table-2"), folder, only=("iris",))
    assert ready.plan.splits == 100
    batch = tuple(one for one in ready.plan.contenders if one.name in ("euclidean", "lmnn", "itml"))
    only = replace(ready.plan, contenders=batch)
    found = run(
        replace(protocol("opml-table-2"), plan=lambda rows, quick: only),
        folder,
        tmp_path,
        splits=1,
        only=("iris",),
    )
    plain, *fitted = found.lines
    assert [line.metric for line in fitted] == ["lmnn", "itml"]
    # A learner that was never fitted would measure by Euclidean distance, and err on the same rows.
    assert all(line.mean < plain.mean for line in fitted)


def test_opml_table_4(folder: DataFolder, tmp_path: Path) -> None:
    found = outcome("opml-table-4", folder, tmp_path)
    assert list(dict.fromkeys(line.data for line in found.lines)) == [
        f"sensorless_2200-{blocks}" for blocks in opml_table_4.BLOCKS
    ]
    assert {line.published_data for line in found.lines} == {"sen-10", "sen-5", "sen-2"}
    assert not found.held


def test_oahu_table_3(folder: DataFolder, tmp_path: Path) -> None:
    found = outcome("oahu-table-3", folder, tmp_path)
    assert {line.measure for line in found.lines} == {"error", "macro_f1", "utilisation"}
    used = {line.metric: line.mean for line in found.lines if line.measure == "utilisation"}
    assert used["oahu"] == used["oahu-published"] == 1.0
    assert {line.metric for line in found.held} == {"lego", "rdml", "oasis", "opml"}
    assert oahu_table_3.PROTOCOL.same["cifar10_gray"] == "cifar10_gray"


def test_lego_uci(folder: DataFolder, tmp_path: Path) -> None:
    found = outcome("lego-uci", folder, tmp_path, only=("wine", "balance"))
    said = {one.what: one for one in found.statements}
    assert said["sets on which LEGO errs less than pola"].ours.endswith("of 2")
    time = said["time of POLA over that of LEGO, mean over sets and halves"]
    assert float(time.ours) > 0.0 and time.published == "16.6"


def test_lego_mnist_pairs(folder: DataFolder, tmp_path: Path) -> None:
    sets = lego_mnist_pairs.PROTOCOL.sets(folder, False)
    assert len(sets) == 45
    found = run(tiny(lego_mnist_pairs.PROTOCOL), folder, tmp_path, quick=True)
    assert found.statements[0].ours.endswith("of 3") and found.statements[0].published == "33 of 45"


def test_a_pair_of_digits_is_tested_on_test_images_alone(folder: DataFolder) -> None:
    """In the made-up set every seventh image is one."""
    ready = prepare(lego_mnist_pairs.PROTOCOL, folder, only=("3 and 8",))
    arrays = folder.arrays("mnist")
    assert arrays is not None
    own = np.isin(arrays["y"], (3, 8))
    split = ready.plan.splitter(ready.rows[0], 0)
    X = next(iter(ready.rows[0].tables.values()))
    expected = arrays["X"][own & arrays["is_test"]].astype(np.float32)
    assert np.array_equal(X[split.test], expected)
    assert len(split.train) == int((own & ~arrays["is_test"]).sum())


def test_omdml_small(folder: DataFolder, tmp_path: Path) -> None:
    found = outcome("omdml-small", folder, tmp_path)
    assert list(dict.fromkeys(line.data for line in found.lines)) == ["mfeat", "msrc_v1"]
    metrics = [line.metric for line in found.lines if line.data == "mfeat"]
    ways = [f"{base}-{way}" for base in ("euclidean", "rca", "oasis") for way in "bcu"]
    assert metrics == [*ways, "omdml", "lomdml"]
    assert all(line.published is not None and not line.same_data for line in found.lines)
    means = {(line.data, line.metric): line.mean for line in found.lines}
    for data in ("mfeat", "msrc_v1"):
        assert means[data, "euclidean-c"] == pytest.approx(means[data, "euclidean-u"])
    assert len(found.statements) == 3


def test_lmnn_of_several_modalities_is_in_the_full_form() -> None:
    pytest.importorskip("metric_learn")
    assert [one.name for one in omdml_small.contenders(False) if one.name.startswith("lmnn")] == [
        "lmnn-b",
        "lmnn-c",
        "lmnn-u",
    ]


def test_a_second_run_takes_over_what_is_finished(folder: DataFolder, tmp_path: Path) -> None:
    once = outcome("opml-table-4", folder, tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert outcome("opml-table-4", folder, tmp_path) == once
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == kept


def test_what_cannot_be_run_is_said(folder: DataFolder, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there are opml-table-2"):
        protocol("opml-table-5")
    with pytest.raises(SettingsError, match="no data set nonsense here; it has iris, wine"):
        prepare(protocol("opml-table-2"), folder, only=("nonsense",))
    with pytest.raises(SettingsError, match=r"none of the data sets is available\n.*mfeat.npz"):
        prepare(protocol("omdml-small"), DataFolder(tmp_path))


@pytest.mark.parametrize("name", names())
def test_every_experiment_says_what_differs_from_the_paper(name: str) -> None:
    found = protocol(name)
    assert found.name == name and found.cut
    assert "Protocol." in found.text and "Differences from the paper." in found.text
