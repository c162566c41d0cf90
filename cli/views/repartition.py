"""The result of a repartition, as text or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kinstream.cli.views.tables import echo_table
from kinstream.streams.operations.repartition.repartition import RepartitionPlan


def as_plain(made: RepartitionPlan, dry_run: bool, notes: Sequence[str]) -> dict[str, Any]:
    """Plain values for `--json`."""
    return {
        "partitions": made.partitions,
        "topics": dict(made.topics),
        "written": bool(made.moves) and not dry_run,
        "resumed": made.resumed,
        "done_before": list(made.done),
        "never_ran": list(made.absent),
        "agents": [
            {
                "agent": move.spec.application,
                "generation": move.birth.generation,
                "before": move.old.number,
                "spaces": move.spaces,
                "moved": move.moved,
                "bytes": move.size,
                "refused": move.refusals,
                "offsets": {str(p): offset for p, offset in move.birth.start_offsets.items()},
            }
            for move in made.moves
        ],
        "notes": [*made.notes, *notes],
    }


def show(made: RepartitionPlan, dry_run: bool, notes: Sequence[str]) -> None:
    """Print it as text."""
    if not made.moves:
        click.echo(f"every agent has been moved to {made.partitions} partitions; there is nothing to do")
        return
    if made.resumed:
        click.echo("continuing a repartition that was begun and did not end")
    rows = [
        (m.spec.application, f"{m.old.number} -> {m.birth.generation}", m.spaces, m.moved, m.size, m.refusals)
        for m in made.moves
    ]
    echo_table(("AGENT", "GENERATION", "SPACES", "MOVED", "BYTES", "REFUSED"), rows)
    for name, count in made.topics.items():
        click.echo(f"{name}: {count} -> {made.partitions} partitions")
    if made.absent:
        click.echo(f"{', '.join(made.absent)} has never run: it will count from now on")
    if made.held > made.lettered:
        click.echo(
            f"{made.held - made.lettered} of {made.held} refused records no longer have a dead letter: they stay on "
            "their partition, and no redrive can apply them"
        )
    for note in (*made.notes, *notes):
        click.echo(f"warning: {note}")
    if dry_run:
        click.echo("nothing was written")
        return
    click.echo(
        f"Set topics.partitions = {made.partitions} in the settings; start the workers, then the producers"
    )
