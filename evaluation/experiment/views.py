"""The views of contenders on rows and blocks of several modalities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kinstream.evaluation.experiment.data import Tables
from kinstream.evaluation.experiment.plan import SIDE_BY_SIDE, TABLES, Contender
from kinstream.learners import registry as learners
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Table, Vectors


def several(contender: Contender) -> bool:
    """Whether the learner takes a table for each modality."""
    if contender.batch:
        return False
    made = learners.create(contender.kind, **contender.arguments(contender.grid[0]))
    return isinstance(made, MultiModal | Fusion)


def tables(found: Tables, view: str) -> dict[str, Vectors]:
    """The tables (n, d_i) of a view.

    Raises
    ------
    SettingsError : there is no such modality.
    """
    if view == TABLES:
        return dict(found)
    if view == SIDE_BY_SIDE:
        return {DEFAULT_MODALITY: np.concatenate(list(found.values()), axis=1)}
    if view not in found:
        raise SettingsError(f"there is no modality {view!r}; there are: {', '.join(found)}")
    return {DEFAULT_MODALITY: found[view]}


def block(found: ConstraintBlock, view: str) -> ConstraintBlock:
    """A block under a view."""
    if view == TABLES:
        return found
    seen = tables({table.name: table.vectors for table in found.tables}, view)
    return replace(found, tables=tuple(Table(name, vectors) for name, vectors in seen.items()))


def features(found: Tables, many: bool) -> Any:
    """Tables as a learner's `transform` and `distance` take them: by name, or the only one.

    Raises
    ------
    SettingsError : a learner of one modality would see several.
    """
    if many:
        return dict(found)
    if len(found) > 1:
        raise SettingsError(
            f"a learner of one modality sees {', '.join(found)}: choose one of them, or all side by side"
        )
    return next(iter(found.values()))
