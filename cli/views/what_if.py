"""The result of a what-if, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from kinstream.cli.views.replay import MAX_LINES
from kinstream.cli.views.replay import as_dict as replayed_as_dict
from kinstream.cli.views.tables import echo_table
from kinstream.replay.what_if.outcomes import REASONS, SideBySide, counts_as_dict
from kinstream.replay.what_if.run import WhatIfResult
from kinstream.replay.what_if.settings import as_toml
from kinstream.replay.what_if.statistics import METHOD
from kinstream.streams.records.values import Counts

_COUNTED = ("seen", "scored", "mistakes", "utilised", "clipped", "rejected")


def as_dict(result: WhatIfResult) -> dict[str, Any]:
    """The result as plain JSON. Ratios and tests are null if there is too little data."""
    replayed = replayed_as_dict(result.replayed, "constraints")
    return {
        "learner": result.learner,
        "settings": dict(result.section),
        "settings_digest": result.settings_digest,
        "messages": replayed["messages"],
        "ranges": replayed["ranges"],
        "models": replayed["learners"],
        "input": replayed["input"],
        "dead_letters": replayed["dead_letters"],
        "recorded": [
            {
                "learner": found.learner,
                "generation": found.generation,
                "outcomes": found.outcomes,
                "again": found.again,
                "unreadable": found.unreadable,
                "by_generation": {str(number): n for number, n in found.by_generation.items()},
            }
            for found in result.recorded
        ],
        "comparisons": [_side(side) for side in result.sides],
        "method": METHOD,
        "notes": list(result.notes),
        "versions": replayed["versions"],
        "saved": None if result.saved is None else _saved(result),
    }


def _side(side: SideBySide) -> dict[str, Any]:
    test = side.test()
    return {
        "against": side.learner,
        "space": side.space,
        "partition": side.partition,
        "recorded": counts_as_dict(side.recorded),
        "what_if": counts_as_dict(side.what_if),
        "matched": {
            "blocks": side.blocks,
            "by_generation": {str(number): n for number, n in sorted(side.generations.items())},
            "recorded": counts_as_dict(side.recorded_all),
            "what_if": counts_as_dict(side.what_if_all),
            "uneven": side.uneven,
        },
        "certain": side.certain,
        "test": asdict(test),
        "unmatched": {why.value: side.unmatched[why] for why in REASONS},
        "curve": [asdict(point) for point in side.curve()],
    }


def _saved(result: WhatIfResult) -> dict[str, Any]:
    saved = result.saved
    assert saved is not None
    return {
        "folder": result.saved_in,
        "digest": saved.digest,
        "offsets": {str(p): offset for p, offset in sorted(saved.birth.start_offsets.items())},
    }


def show(result: WhatIfResult) -> None:
    """Print the settings, tables and notes."""
    click.echo(as_toml(result.learner, result.section))
    click.echo()
    sides = result.sides[:MAX_LINES]
    header = ("SPACE", "WHO", *(name.upper() for name in _COUNTED), "MISTAKE RATE", "UTILISATION")
    echo_table(header, [line for side in sides for line in _lines(side)])
    click.echo()
    header = ("SPACE", "AGAINST", "BLOCKS", "CONSTRAINTS", "DIFFERENCE", "95 % INTERVAL", "P")
    signs = ("BETTER", "WORSE", "EQUAL", "SIGN P", "NOT COMPARED", "UNMATCHED")
    echo_table((*header, *signs), [_tested(side) for side in sides])
    if len(result.sides) > MAX_LINES:
        click.echo(f"{len(result.sides) - MAX_LINES} more: --json shows them all")
    for line in _missed(result):
        click.echo(line)
    click.echo()
    click.echo(f"{METHOD[0].upper()}{METHOD[1:]}.")
    for note in result.notes:
        click.echo(note)
    if result.saved is not None:
        click.echo()
        click.echo(
            f"The state is saved in {result.saved_in}. To continue with it, put the settings above into the settings "
            f"file, stop the workers of learner-{result.learner}, and\n"
            f"  kinstream models promote {result.saved_in} --learner {result.learner}"
        )


def _lines(side: SideBySide) -> Iterator[list[str]]:
    for who, counts in ((f"{side.learner}, recorded", side.recorded), ("what-if", side.what_if)):
        ratios = _ratios(counts)
        yield [side.space, who, *(f"{getattr(counts, name):,}" for name in _COUNTED), *ratios]


def _ratios(counts: Counts) -> list[str]:
    values = counts_as_dict(counts)
    return [_number(values["mistake_rate"]), _number(values["utilisation"])]


def _tested(side: SideBySide) -> list[str]:
    test = side.test()
    interval = "-" if test.low is None else f"{test.low:+.4f} to {test.high:+.4f}"
    return [
        side.space,
        side.learner,
        f"{test.blocks:,}",
        f"{test.constraints:,}",
        "-" if test.difference is None else f"{test.difference:+.4f}",
        interval,
        _chance(test.p),
        f"{test.better:,}",
        f"{test.worse:,}",
        f"{test.equal:,}",
        _chance(test.sign_p),
        f"{side.uneven:,}",
        f"{side.unmatched.total():,}",
    ]


def _missed(result: WhatIfResult) -> Iterator[str]:
    """The unmatched records, by learner and reason, over all spaces."""
    for found in result.recorded:
        of = [side for side in result.sides if side.learner == found.learner]
        for why, words in REASONS.items():
            number = sum(side.unmatched[why] for side in of)
            if number:
                yield f"{number:,} blocks without a counterpart with {found.learner}: {words}"
        if found.again:
            yield f"{found.again:,} outcomes of {found.learner} occur twice in the log, and count once"
        if found.unreadable:
            yield f"{found.unreadable:,} records of {found.learner} cannot be read"
    for agent, counts in result.replayed.input.items():
        for name, words in (
            ("duplicates", "sent twice by a builder, learned once"),
            ("adopted", "taken up mid-chain"),
        ):
            if counts.get(name):
                yield f"{counts[name]:,} constraint blocks of {agent}: {words}"
    for agent, dead in result.replayed.dead.items():
        if dead:
            listed = ", ".join(f"{number:,} {reason}" for reason, number in sorted(dead.items()))
            yield f"{agent} would refuse: {listed}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _chance(p: float | None) -> str:
    return "< 0.0001" if p is not None and p < 0.0001 else _number(p)
