"""`kinstream evaluate counterfactual` over a log in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import Version
from tests.evaluation.drafted_log import DRAFTED, LISTS, NEW, DraftedLog
from tests.gate.gates import click, drafted


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftedLog:
    made = DraftedLog(tmp_path)
    made.connect(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["evaluate", "counterfactual", "--space", "docs", *arguments])


def found(*arguments: str) -> dict[str, Any]:
    result = ran(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def refused(*arguments: str) -> str:
    with pytest.raises(SettingsError) as error:
        CliRunner().invoke(
            cli,
            ["evaluate", "counterfactual", "--space", "docs", *arguments],
            catch_exceptions=False,
            standalone_mode=False,
        )
    return str(error.value)


def test_a_model_that_nobody_was_shown_is_found_to_be_better(log: DraftedLog) -> None:
    log.append(click("an ordinary list", 0))
    log.append(click(drafted(5, Version(1, 0, 999)), 0))
    answer = found("--model", "new.npz", "--model", "drafted.npz")
    assert answer["lists"] == dict.fromkeys(answer["lists"], 0) | {
        "used": LISTS,
        "ranked": 1,
        "other_model": 1,
    }
    assert (answer["people"], answer["exponent"]) == (LISTS // 2, 1.0)
    by_name = {one["model"]: one for one in answer["models"]}
    assert list(by_name) == ["un-adapted", str(NEW), str(DRAFTED)]
    new = by_name[str(NEW)]
    # All of what it shows first is wanted: of 4 places, looked at with 1, 1/2, 1/3, 1/4.
    truth = 0.8 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    assert by_name["un-adapted"]["snips"]["high"] < new["snips"]["low"] < truth < new["snips"]["high"]
    # A third of it could not be shown, which this estimate counts as not clicked.
    assert new["ips"]["high"] < truth
    assert new["unsupported"] > 0.05 and "could not be shown" in new["warnings"][-1]
    for name in ("un-adapted", str(DRAFTED)):
        one = by_name[name]
        assert one["unsupported"] == 0.0 and one["effective_lists"] > 100 and one["warnings"] == []
        assert one["dr"]["low"] < one["ips"]["value"] < one["dr"]["high"]
    assert by_name["un-adapted"]["change"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_the_table_names_every_model_and_warns_on_standard_error(log: DraftedLog) -> None:
    result = ran("--model", "drafted.npz", "--model", "new.npz")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["MODEL", "un-adapted", "1.0.100", "1.0.200"]
    assert f"{LISTS} drafted lists of {LISTS // 2} people" in result.stdout
    assert "warning: 1.0.200: 37% of what" in result.stderr and "warning" not in result.stdout


def test_items_are_read_from_the_beginning_and_lists_from_the_start(log: DraftedLog) -> None:
    # The items are the first record.
    answer = found("--model", "drafted.npz", "--start", "101", "--end", "201")
    assert answer["lists"]["used"] == 100


def test_another_exponent_gives_another_answer(log: DraftedLog) -> None:
    one, other = (
        found("--model", "drafted.npz", "--exponent", text)["models"][0]["ips"] for text in ("1", "0.5")
    )
    assert one != other


def test_what_cannot_be_estimated_is_said_in_one_line(
    log: DraftedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{LISTS} other_model" in refused()
    assert "was named before" in refused("--model", "new.npz", "--model", "new.npz")
    assert "No such file" in refused("--model", "none.npz")
    assert "none; see docs/evaluating.md" in refused("--model", "drafted.npz", "--start", "5000")
    monkeypatch.setenv("KINSTREAM_GATE_KEY", "")
    assert "needs a key" in refused("--model", "drafted.npz")


def test_a_record_that_cannot_be_decoded_is_left_out(log: DraftedLog) -> None:
    log.log.append("kinstream.events", b"docs", b"\x00 of no use")
    log.log.append("kinstream.events", b"elsewhere", b"\x00 of no use")
    assert found("--model", "drafted.npz")["lists"]["used"] == LISTS
