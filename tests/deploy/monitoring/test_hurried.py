"""The rules of the live test are the shipped ones but for their durations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.monitoring.programs import ALERTS, RECORDING, run
from tests.deploy.monitoring.short_rules import DURATION, hurried, seconds

DIVISOR = 30


def without_durations(text: str) -> str:
    return DURATION.sub(lambda match: f"{match['before']}DURATION{match['after']}", text)


@pytest.mark.parametrize("path", [ALERTS, RECORDING], ids=lambda path: path.name)
def test_only_durations_change_and_all_by_the_same_factor(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    short = hurried(text, DIVISOR)
    assert without_durations(short) == without_durations(text)
    before, after = ([seconds(m) for m in DURATION.finditer(some)] for some in (text, short))
    assert after == [some / DIVISOR for some in before] and len(before) > 10
    (tmp_path / path.name).write_text(short, encoding="utf-8")
    assert run("promtool", "check", "rules", str(tmp_path / path.name)).returncode == 0


@pytest.mark.parametrize("path", [ALERTS, RECORDING], ids=lambda path: path.name)
def test_no_duration_is_left_as_it_was(path: Path) -> None:
    """Whatever looks like a duration in an expression or a clause is one that the script knows."""
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            expr = re.sub(r"[\w:]*:[\w:]+", "", rule["expr"])  # names of recorded series
            texts = [f"[{found}]" for found in re.findall(r"\[([^\]]+)\]", expr)]
            texts += [f"offset {found})" for found in re.findall(r"offset (\w+)", expr)]
            texts += [f"for: {rule['for']}"] if "for" in rule else []
            texts += [f"interval: {group['interval']}"] if "interval" in group else []
            assert all(DURATION.search(text) for text in texts), (rule, texts)
