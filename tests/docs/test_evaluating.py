"""The first command of the page on evaluating prints what the page shows, but for its numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinstream.cli.main import cli
from tests.docs.pages import ROOT, blocks
from tests.evaluation.drafted_log import DraftedLog

PAGE = ROOT / "docs" / "evaluating.md"


def plain(text: str) -> str:
    """Without numbers, line ends, and widths of columns."""
    return " ".join(re.sub(r"p [=<] #", "p", re.sub(r"\d[\d.,]*\d|\d", "#", text)).split())


def test_the_first_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    command = next(blocks(PAGE, "sh")).text.splitlines()[0]
    words = [
        *shlex.split(command, comments=True)[1:],
        "--jobs",
        "1",
        "--output",
        str(tmp_path),
    ]
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    shown = next(blocks(PAGE, "text")).text
    # Which of two features has the larger share may depend on the processor.
    until = shown.index("feature of mixture")
    assert plain(shown[:until]) in plain(found.stdout)
    features = set(re.findall(r"^(.+?)  ", shown[until:], flags=re.M)) - {"feature of mixture"}
    assert len(features) == 3 and all(name in found.stdout for name in features)


def test_the_counterfactual_estimate_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DraftedLog(tmp_path).connect(monkeypatch)
    monkeypatch.chdir(tmp_path)
    command, _ = (b.text for b in blocks(PAGE, "sh") if "evaluate counterfactual" in b.text)
    found = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert found.exit_code == 0, found.output
    shown, _ = (b.text for b in blocks(PAGE, "text") if b.text.startswith("MODEL "))
    assert found.stdout.strip() == shown.strip()
    warnings = [line for line in found.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.split()[1:3] for line in warnings] == [["1.0.200:", "37%"]]
