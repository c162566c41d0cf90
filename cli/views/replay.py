"""The result of a replay, as tables or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import click

from kinstream.cli.views.tables import echo_table
from kinstream.evaluation.report.clipping import clipped_text
from kinstream.monitoring.tallies import mistakes, utilised
from kinstream.replay.log.comparison import Agreement
from kinstream.replay.log.run import Result
from kinstream.streams.records.held_out import LEARNED, METRICS, HeldOut
from kinstream.streams.records.values import Counts

#: Lines of a table on the terminal; --json has them all.
MAX_LINES: Final = 50
_COUNTED: Final = ("seen", "scored", "mistakes", "utilised", "clipped", "rejected")


def agrees(result: Result) -> bool:
    """Whether at least one comparison was made and all are equal."""
    verdicts = {comparison.verdict for comparison in result.comparisons}
    return Agreement.EQUAL in verdicts and not verdicts & {Agreement.DIFFERS, Agreement.DAMAGED}


def as_dict(result: Result, source: str) -> dict[str, Any]:
    """The result as plain JSON. Ratios are null if the denominator is 0."""
    return {
        "source": source,
        "messages": result.messages,
        "ranges": {str(p): list(some) for p, some in result.ranges.items()},
        "learners": list(_rows(result)),
        "builders": [
            {
                "builder": m.agent.removeprefix("builder-"),
                "space": m.space,
                "epoch": m.epoch,
                "digest": m.digest,
            }
            for m in result.models
            if m.agent.startswith("builder-")
        ],
        "input": {agent: dict(sorted(counts.items())) for agent, counts in result.input.items()},
        "dead_letters": {agent: dict(sorted(counts.items())) for agent, counts in result.dead.items()},
        "bit_identical": {"builders": list(result.claim.builders), "learners": list(result.claim.learners)},
        "claim": " ".join(result.claim.sentences),
        "versions": dict(result.versions),
        "comparisons": [
            {
                "agent": c.agent,
                "partition": c.partition,
                "space": c.space,
                "verdict": c.verdict.value,
                "checkpoint_offset": c.offset,
                "detail": c.detail,
            }
            for c in result.comparisons
        ],
    }


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    for model in result.models:
        if not model.agent.startswith("learner-"):
            continue
        learner = model.agent.removeprefix("learner-")
        counts = result.outcomes.get((learner, model.space), Counts())
        yield {
            "learner": learner,
            "space": model.space,
            "epoch": model.epoch,
            "step": model.step,
            "status": model.status,
            **{name: getattr(counts, name) for name in Counts.__dataclass_fields__},
            "mistake_rate": mistakes(counts).ratio,
            "utilisation": utilised(counts).ratio,
            "held_out_events": _held_out(result.held_out.get((learner, model.space))),
            "digest": model.digest,
        }


def _held_out(found: HeldOut | None) -> dict[str, Any] | None:
    """Mistake rates on held-out events by metric: of all, and of the window, in which the newest count most."""
    if found is None:
        return None
    difference = found.difference
    return {
        "events": found.judged,
        "mistake_rates": {metric: found.block.rate(metric) for metric in METRICS},
        "window_mistake_rates": {metric: found.window.rate(metric) for metric in METRICS},
        "best_unlearned": found.best,
        "difference": difference and difference._asdict() | ({} if found.published else {"value": None}),
        "verdict": found.verdict,
        "worse": found.worse,
    }


def show(result: Result, *, compare: bool) -> None:
    """Print the tables and the guarantees."""
    rows = list(_rows(result))
    header = (
        "LEARNER",
        "SPACE",
        *(name.upper() for name in _COUNTED),
        "MISTAKE RATE",
        "UTILISATION",
        "MODEL",
    )
    echo_table(header, [_line(row) for row in rows[:MAX_LINES]])
    if len(rows) > MAX_LINES:
        click.echo(f"{len(rows) - MAX_LINES} more models: --json shows them all")
    for row in rows:
        if row["split_scored"]:
            click.echo(_split(row))
        if row["held_out_events"]:
            click.echo(_judged(row))
        if text := clipped_text(f"{row['learner']} on {row['space']}", row["clipped"], row["utilised"]):
            click.echo(text)
    for agent, dead in result.dead.items():
        if dead:
            listed = ", ".join(f"{number:,} {reason}" for reason, number in sorted(dead.items()))
            click.echo(f"{agent} refused: {listed}")
    if compare:
        _show_comparisons(result)
    click.echo()
    for sentence in result.claim.sentences:
        click.echo(sentence)


def _line(row: dict[str, Any]) -> list[str]:
    ratios = (row["mistake_rate"], row["utilisation"])
    return [
        row["learner"],
        row["space"],
        *(f"{row[name]:,}" for name in _COUNTED),
        *("-" if ratio is None else f"{ratio:.4f}" for ratio in ratios),
        (row["digest"] or "-")[:16],
    ]


def _split(row: dict[str, Any]) -> str:
    return (
        f"{row['learner']} on {row['space']}: {row['split_scored']:,} more scored constraints belong to events that "
        f"began in an earlier block, with {row['split_mistakes']:,} mistakes; the mistake rate leaves them out"
    )


def _judged(row: dict[str, Any]) -> str:
    """One line about held-out events."""
    found = row["held_out_events"]
    rates, best = found["window_mistake_rates"], found["best_unlearned"]
    text = (
        f"{row['learner']} on {row['space']}: {found['events']:,} events held out: mistake rate {rates[LEARNED]:.4f} "
        f"learned, {rates[best]:.4f} {best}"
    )
    if found["difference"] is None:
        return f"{text}; {found['verdict']}"
    low, high = found["difference"]["low"], found["difference"]["high"]
    return f"{text}; difference {found['difference']['value']:+.4f} (95 % {low:+.4f} to {high:+.4f})"


def _show_comparisons(result: Result) -> None:
    found = sorted(result.comparisons, key=lambda c: c.verdict is Agreement.EQUAL)
    rows = [(c.agent, c.partition, c.space or "-", c.offset, c.verdict.value, c.detail) for c in found]
    click.echo()
    echo_table(("AGENT", "PARTITION", "SPACE", "CHECKPOINT AT", "VERDICT", "DETAIL"), rows[:MAX_LINES])
    verdicts = Counter(c.verdict.value for c in found)
    listed = ", ".join(f"{number:,} {verdict}" for verdict, number in sorted(verdicts.items()))
    click.echo(f"against the checkpoints: {listed or 'nothing could be compared'}")
