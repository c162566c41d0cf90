"""Defines an experiment of a paper, and runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import cleandoc, getmodule
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.shared.comparison import PaperComparison, Statement, compared
from benchmarks.papers.shared.data_folder import DataFolder, Missing
from benchmarks.papers.shared.published import Printed
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.plan import Contender, Plan
from kinstream.evaluation.runner.run import TIMES, evaluate
from kinstream.evaluation.runner.store import Store, canonical
from kinstream.learners import registry as learners
from kinstream.learners.base.scaler import PUBLISHED
from kinstream.streams.errors import SettingsError

#: File of the comparison, beside `result.json`.
COMPARISON: Final = "comparison.json"

Result = Mapping[str, Any]
#: Times of the cells, as in `timings.json`.
Times = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Protocol:
    """An experiment of a paper. Its module documents the protocol, and its differences from the paper.

    Parameters
    ----------
    name : for the command.
    title : one line.
    sets : the data sets, and missing ones; the second argument selects the quick form.
    plan : of the experiment for those sets.
    printed : what the paper prints.
    same : our data set to the paper's name for the same rows.
    other : our data set to sets of the paper that it stands in for: their figures are shown for information only.
    bounded : metrics whose error is limited by the published mean and two deviations.
    extra : figures outside of tables, from the result and the times.
    cut : the reductions of the quick form, as text.
    """

    name: str
    title: str
    sets: Callable[[DataFolder, bool], Sequence[LabelledRows | Missing]]
    plan: Callable[[Sequence[LabelledRows], bool], Plan]
    cut: str
    printed: Sequence[Printed] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()
    extra: Callable[[Result, Times], Sequence[Statement]] = lambda result, times: ()

    @property
    def text(self) -> str:
        """The protocol, and its differences from the paper."""
        return cleandoc(getattr(getmodule(self.plan), "__doc__", None) or "")


@dataclass(frozen=True)
class Prepared:
    """An experiment ready to run.

    Parameters
    ----------
    missing : missing data sets; the others make up the experiment.
    """

    plan: Plan
    rows: tuple[LabelledRows, ...]
    missing: tuple[Missing, ...]


def prepare(
    protocol: Protocol,
    data: DataFolder,
    *,
    quick: bool = False,
    splits: int | None = None,
    only: Sequence[str] = (),
) -> Prepared:
    """The available data sets, and the plan for them.

    Parameters
    ----------
    quick : a smaller form; `Protocol.cut` describes what it leaves out.
    splits : of each data set, instead of the protocol's.
    only : these data sets alone.

    Raises
    ------
    SettingsError : none of the data sets is available, or a name is unknown.
    """
    found = protocol.sets(data, quick)
    if unknown := sorted(set(only) - {one.name for one in found}):
        names = ", ".join(one.name for one in found)
        raise SettingsError(f"{protocol.name} has no data set {', '.join(unknown)} here; it has {names}")
    wanted = [one for one in found if not only or one.name in only]
    rows = tuple(one for one in wanted if isinstance(one, LabelledRows))
    missing = tuple(one for one in wanted if isinstance(one, Missing))
    if not rows:
        raise SettingsError(
            "\n".join(["none of the data sets is available", *(one.reason for one in missing)])
        )
    plan = protocol.plan(rows, quick)
    plan = replace(plan, contenders=tuple(map(_as_published, plan.contenders)))
    return Prepared(plan if splits is None else replace(plan, splits=splits), rows, missing)


def _as_published(contender: Contender) -> Contender:
    """In the unit of the papers' step sizes."""
    if not learners.has(contender.kind, "unit"):
        return contender
    return replace(contender, settings={"unit": PUBLISHED, **contender.settings})


def compare(protocol: Protocol, result: Result, folder: Path) -> PaperComparison:
    """The figures of a result beside the published ones; written to `comparison.json`, too.

    Parameters
    ----------
    folder : of the result, with its times.
    """
    times = json.loads((folder / TIMES).read_text(encoding="utf-8"))
    found = compared(
        result,
        protocol.printed,
        protocol.same,
        protocol.other,
        protocol.bounded,
        protocol.extra(result, times),
    )
    Store(folder).write(COMPARISON, canonical(found.as_dict()))
    return found


def run(
    protocol: Protocol,
    data: DataFolder,
    folder: Path,
    *,
    quick: bool = False,
    splits: int | None = None,
    only: Sequence[str] = (),
    jobs: int = 1,
) -> PaperComparison:
    """Prepare an experiment, run it and put the published figures beside it; parameters as above.

    Parameters
    ----------
    folder : for the results; finished cells there are reused.
    jobs : processes.
    """
    ready = prepare(protocol, data, quick=quick, splits=splits, only=only)
    return compare(protocol, evaluate(ready.plan, ready.rows, folder, jobs=jobs), folder)
