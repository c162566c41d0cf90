"""Learners are made by name, and errors name what is known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kinstream.learners.base.learner import Learner
from kinstream.learners.registry import create, own_names
from kinstream.streams.errors import SettingsError
from tests.docs.pages import ROOT


@pytest.mark.parametrize("kind", own_names())
def test_every_name_makes_a_learner(kind: str) -> None:
    learner = create(kind)
    assert isinstance(learner, Learner)
    assert learner.algorithm.startswith(kind)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"no learner is called 'omlp'; known are .*copml.*opml"):
        create("omlp")
    with pytest.raises(SettingsError, match=r"opml has no setting gama; it has gamma, guard"):
        create("opml", gama=1.0)


def test_a_kind_that_was_removed_names_its_successor() -> None:
    with pytest.raises(SettingsError, match="'portfolio' was removed: use 'mixture' in a new generation"):
        create("portfolio", floor=0.5)


def test_the_package_and_the_registry_import_no_algorithm() -> None:
    script = (
        "import sys, kinstream.learners.registry; sys.exit(any(m in sys.modules for m in ('numba', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
