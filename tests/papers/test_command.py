"""`python -m benchmarks.papers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.papers.__main__ import paper
from benchmarks.papers.registry import names
from benchmarks.papers.shared.comparison import Line, PaperComparison
from benchmarks.papers.shared.published import Reported
from benchmarks.papers.view import as_markdown, verdict
from tests.papers.made_up_sets import fill


def run(*arguments: str) -> Result:
    found = CliRunner().invoke(paper, arguments)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_ours_stand_beside_the_published_figures(tmp_path: Path) -> None:
    sets, out = tmp_path / "sets", tmp_path / "out"
    sets.mkdir()
    fill(sets)
    words = ("opml-table-4", "--quick", "--data", str(sets), "--splits", "1", "--output", str(out))
    found = run(*words, "--jobs", "1")
    assert found.exit_code == 0, found.output
    assert "left out: segment.npz is not in" in found.stderr
    assert "quick form: 3 runs instead of 10" in found.stderr
    row = next(line for line in found.stdout.splitlines() if line.startswith("sensorless_2200-10  copml"))
    assert "0.071 ± 0.011" in row and row.endswith("other data: sen-10")
    assert "No error has a limit here" in found.stdout
    lines = json.loads((out / "comparison.json").read_text(encoding="utf-8"))["lines"]
    assert len(lines) == 9
    table = run(*words, "--jobs", "1", "--markdown")
    assert "| error | euclidean | opml | copml |" in table.stdout
    assert "| sensorless_2200-5 (other data: sen-5) | " in table.stdout


@pytest.mark.parametrize("name", names())
def test_help_and_description(name: str) -> None:
    assert name in run("--help").output
    told = run(name, "--describe").output
    assert "Differences from the paper." in told and "The quick form has " in told


def test_an_exception_is_named() -> None:
    above = Line("iris", "lego", "error", 0.5, 0.1, 3, Reported(0.05, 0.02), "iris", True, True)
    within = Line("iris", "opml", "error", 0.05, None, 1, Reported(0.049, 0.023), "iris", True, True)
    assert verdict(PaperComparison((above, within))) == (
        "1 of 2 errors are above the published mean and two deviations: lego on iris"
    )
    assert verdict(PaperComparison((within,))).startswith("All 1 errors with a limit")
    free = Line("spect", "opml", "error", 0.2, None, 1, Reported(0.3, 0.01), "spect")
    assert "| spect (no limit) | .200 / .300 (-.100) |" in as_markdown(PaperComparison((free,)))
    assert "| iris | .500 / .050 (+.450) (!) | .050 / .049 (+.001) |" in as_markdown(
        PaperComparison((above, within))
    )
