"""What `make audit` says of what pip-audit found, and that no answer is never taken for a good one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.security import audit

GOOD: dict[str, Any] = {"name": "numpy", "version": "2.0", "vulns": []}
BAD: dict[str, Any] = {
    "name": "old",
    "version": "1",
    "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}, {"id": "CVE-2", "fix_versions": []}],
}
UNKNOWN: dict[str, Any] = {"name": "kinstream", "skip_reason": "not found: kinstream (0.1.0)"}


@pytest.mark.parametrize(
    ("found", "status", "told"),
    [
        ([GOOD, UNKNOWN], 0, "not checked: kinstream\n1 packages checked; 0 with"),
        (
            [GOOD, BAD],
            1,
            "old 1: CVE-1, mended in 2\nold 1: CVE-2, mended in no version\n2 packages checked; 1 with",
        ),
        ([UNKNOWN, UNKNOWN], 2, "nothing was checked: the database knows no package: not found: kinstream"),
        ([], 2, "nothing was checked"),
    ],
)
def test_the_report(
    found: list[dict[str, Any]], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.report(found) == status
    assert capsys.readouterr().out.startswith(told)


def test_a_database_that_does_not_answer_is_said_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(
            command, 1, "", "Traceback\nConnectionError: no route to the database\n"
        )

    monkeypatch.setattr(audit, "_run", refuse)
    monkeypatch.setattr(audit, "TOOLS", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip-audit").touch()
    assert audit.main() == 2
    assert "cannot reach its database: ConnectionError: no route" in capsys.readouterr().out
