"""Checks for your own learners, builders and sources: the same that Kinstream's own have to pass.

`check_learner(make)`, `check_builder(make, events)` and `check_source(make)` run all of them and raise AssertionError
at the first that fails. `LEARNER_CHECKS`, `BUILDER_CHECKS`, `SAMPLE_CHECKS` and `SOURCE_CHECKS` are the single checks,
for a test runner that reports each by its name. No test runner is needed; under pytest,
`pytest.register_assert_rewrite("kinstream.testing")` in a conftest.py makes the reports of failures longer.
"""

from __future__ import annotations

from kinstream.testing.blocks import block, pair_blocks, triplet_blocks
from kinstream.testing.builders import BUILDER_CHECKS, SAMPLE_CHECKS, check_builder
from kinstream.testing.builders import Case as BuilderCase
from kinstream.testing.learner_checks import LEARNER_CHECKS, check_learner
from kinstream.testing.learners import Case as LearnerCase
from kinstream.testing.sources import SOURCE_CHECKS, check_source

__all__ = [
    "BUILDER_CHECKS",
    "LEARNER_CHECKS",
    "SAMPLE_CHECKS",
    "SOURCE_CHECKS",
    "BuilderCase",
    "LearnerCase",
    "block",
    "check_builder",
    "check_learner",
    "check_source",
    "pair_blocks",
    "triplet_blocks",
]
