"""An alert has a cause, or is false."""

from __future__ import annotations

import pytest

from tests.soak.alerts import Fired, false_ones

LETTERS = "KinstreamDeadLettersRising"
RESTARTING = "KinstreamWorkerRestarting"


@pytest.mark.parametrize(
    ("alert", "false"),
    [
        (Fired(LETTERS, "warning", "builder-one-pass"), False),
        (Fired(LETTERS, "critical", "builder-one-pass"), True),
        (Fired(LETTERS, "warning", "learner-opml"), True),
        (Fired(RESTARTING, "warning", "learner-opml"), False),
        (Fired(RESTARTING, "warning", "metrics"), True),
        (Fired("KinstreamDown", "critical", ""), True),
    ],
)
def test_what_was_done_explains_an_alert(alert: Fired, false: bool) -> None:
    restarts = {"learner-opml": [100.0, 300.0, 500.0], "metrics": [100.0, 300.0]}
    assert bool(false_ones({alert: 600.0}, restarts, ["builder-one-pass"])) is false


def test_restarts_of_long_ago_explain_nothing() -> None:
    fired = {Fired(RESTARTING, "warning", "metrics"): 3000.0}
    assert false_ones(fired, {"metrics": [100.0, 200.0, 2900.0]}, [])
