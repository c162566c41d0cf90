"""What `make test` leaves to `make test-long`, so that a stranger waits minutes for it and not half an hour.

`make test` keeps what protects users most: delivery guarantees, old checkpoints, a crash run, the recipes of the docs,
and one way of every learner. Here is the rest: what needs programs of other projects, real outages of every sort, and
all number types, kernels and settings of all learners.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

#: Folders, files and tests.
LONG: Final = (
    # Chart, rules and image: helm, promtool, Alertmanager, a container build.
    "tests/deploy/",
    "tests/monitoring/test_promtool.py",
    # Second implementations, written from the papers, of every learner.
    "tests/learners/test_transcriptions.py",
    "tests/learners/test_transcriptions_kernels.py",
    "tests/learners/test_transcriptions_themselves.py",
    "tests/learners/test_oahu_reference.py",
    "tests/replay/papers/",
    # One property of every learner in every setting.
    "tests/learners/test_export_onnx.py::test_every_learner_has_the_form_or_says_that_it_has_none",
    "tests/learners/test_export_onnx.py::test_the_scaler_is_within",
    "tests/learners/test_first_model.py",
    "tests/learners/test_no_python_per_constraint.py",
    "tests/search/test_served_exactly.py",
    "tests/streams/test_crashes_of_kinds.py",
    "tests/streams/test_repartition_kills.py",
    # Approximate indexes, which are chosen by whoever has measured them.
    "tests/search/test_lsh_linear.py",
    "tests/search/test_lsh_second_level.py",
    "tests/search/test_recall.py",
    # Figures of simulated and of real clicks.
    "tests/clicks/test_mistake_rate.py",
    "tests/clicks/test_online_mistake_rate.py",
    "tests/clicks/test_open_bandit.py",
    # Real workers in trouble; outages, checkpoints and poisoned records stay.
    "tests/crash/test_join_crash_run.py",
    "tests/faults/test_log.py",
    "tests/faults/test_outputs.py",
    "tests/faults/test_own_outputs.py",
    "tests/faults/test_recreated.py",
    "tests/faults/test_refusals.py",
    "tests/faults/test_strings.py",
    "tests/faults/test_take_over.py",
    "tests/faults/test_topics_watched.py",
    "tests/faults/test_updates.py",
    "tests/faults/test_watchdog.py",
    "tests/security/test_acls.py",
    "tests/security/test_refused_while_running.py",
    "tests/security/test_roles.py",
    "tests/cli/test_demo_clicks.py",
)
#: Tests over cases, of which `make test` runs the first of every learner.
OVER_CASES: Final = "tests/learners/test_checks.py::test_check"


def is_long(nodeid: str) -> bool:
    """Whether a test belongs to `make test-long` by its name."""
    name = nodeid.partition("[")[0]
    return any(name == one or name.startswith((one.rstrip("/") + "/", one + "::")) for one in LONG)


def mark(items: list[pytest.Item]) -> None:
    """Give the marker `long` to what belongs to `make test-long`."""
    first: dict[str, str] = {}
    for item in items:
        case = _case(item) if item.nodeid.startswith(OVER_CASES + "[") else None
        if is_long(item.nodeid) or (
            case is not None and first.setdefault(case.partition(":")[0], case) != case
        ):
            item.add_marker("long")


def _case(item: pytest.Item) -> str:
    name: str = item.callspec.params["case"].name  # type: ignore[attr-defined]
    return name


class Selection:
    """Marks what is long, and ends the session with one line that says what was left out and how to get it."""

    def __init__(self) -> None:
        self._long = 0
        self._reasons: set[str] = set()
        self._skipped = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Before `-m` chooses.
        mark(items)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._long += sum(item.get_closest_marker("long") is not None for item in items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["long"] = self._long

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # Every process of pytest-xdist collects all tests.
        self._long = max(self._long, getattr(node, "workeroutput", {}).get("long", 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            self._skipped += 1
            self._reasons.add(report.longrepr[2].removeprefix("Skipped: "))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if hasattr(config, "workerinput"):
            return
        parts = []
        if self._long:
            parts.append(f"{self._long} long tests (make test-long runs them)")
        if self._skipped:
            parts.append(
                f"{self._skipped} tests that need what is missing here ({'; '.join(sorted(self._reasons))})"
            )
        if parts:
            print(f"left out: {', and '.join(parts)}")
