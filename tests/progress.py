"""What a run that is ended from outside still has told: the failures so far, and the tests that took longest."""

from __future__ import annotations

import time
from typing import Final

import pytest

#: A test that takes longer is named when it ends.
SLOW_SECONDS: Final = 60.0


class Progress:
    """Names each failure and each slow test in the output at once, with the seconds since the run began."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line for a failure, and one for what was slow."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        slow = report.when == "call" and report.duration >= SLOW_SECONDS
        if terminal is None or not (report.failed or slow):
            return
        at = time.monotonic() - self._began
        terminal.write(
            f"\n{at:.0f} s: {report.nodeid} {report.outcome} ({report.when}) in {report.duration:.1f} s\n"
        )
