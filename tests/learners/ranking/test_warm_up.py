"""A worker of `ranking` that was warmed up compiles nothing while lists wait."""

from __future__ import annotations

import importlib
import pkgutil

from numba.core.dispatcher import Dispatcher

from kinstream.learners import kernels
from kinstream.learners.registry import create
from kinstream.learners.warm_up import warm_up
from tests.learners.ranking.world import World


def _signatures() -> dict[str, int]:
    """How many compiled forms every kernel of the learners has."""
    found = {}
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher):
                found[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return found


def test_lists_leave_nothing_to_compile() -> None:
    warm_up("ranking")
    before = _signatures()
    assert before["kinstream.learners.kernels.weights.weigh"] > 0, before
    learner = create("ranking")
    for block in World(40).blocks():
        learner.learn(block)
    assert _signatures() == before
