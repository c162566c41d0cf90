"""Counterfactual estimates, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from kinstream.cli.views.tables import echo_table

if TYPE_CHECKING:
    from kinstream.evaluation.counterfactual.drafted_log import Model, Recorded
    from kinstream.evaluation.counterfactual.estimates import Estimate, Estimates
    from kinstream.evaluation.counterfactual.prequential import Judged

#: Below so many effective lists, and above such a share without support, a warning is printed.
FEW: Final = 100
UNSUPPORTED: Final = 0.05
#: What is said of lists that give no estimate.
NONE: Final = (
    "no estimate: lists of two people are needed that were drafted by the given models. Lists of space "
)


def lacking(space: str, lists: Recorded) -> str:
    """Why there is no estimate, by what the lists were."""
    uses = ", ".join(f"{count} {use}" for use, count in lists.uses.items() if count) or "none"
    return f"{NONE}{space!r}: {uses}; see docs/evaluating.md"


def warnings(model: Model, one: Estimates) -> Iterator[str]:
    """What limits an estimate."""
    if one.effective_lists < FEW:
        yield (
            f"{model}: the lists say as much as {one.effective_lists:.0f} of its own: fewer than {FEW}, so the "
            "interval may be too narrow"
        )
    if one.unsupported > UNSUPPORTED:
        yield (
            f"{model}: {one.unsupported:.0%} of what it would show could not be shown. IPS counts that as never "
            "clicked, SNIPS as clicked like the rest, DR by a guess: the intervals do not contain this error"
        )


def as_dict(space: str, lists: Recorded, found: Mapping[Model, Estimates], exponent: float) -> dict[str, Any]:
    """The estimates as plain JSON."""
    return {
        "space": space,
        "exponent": exponent,
        "lists": lists.uses,
        "people": len(set(lists.people)),
        "clicks_per_list": recorded_clicks(lists),
        "models": [
            {
                "model": str(model),
                "naive": one.naive,
                **{name: getattr(one, name)._asdict() for name in ("ips", "snips", "dr", "change")},
                "effective_lists": one.effective_lists,
                "unsupported": one.unsupported,
                "largest_weight": one.largest_weight,
                "warnings": list(warnings(model, one)),
            }
            for model, one in found.items()
        ],
    }


def recorded_clicks(lists: Recorded) -> float | None:
    """Clicks a list at the places at which models are evaluated; None without lists."""
    from kinstream.evaluation.counterfactual.drafted_log import depth_of

    clicks = [one.clicked[: depth_of(len(one.clicked))].sum() for one in lists.shown]
    return float(sum(clicks) / len(clicks)) if clicks else None


def show(lists: Recorded, found: Mapping[Model, Estimates]) -> None:
    """Print a table, the lists, and warnings on standard error."""

    def text(one: Estimate) -> str:
        return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"

    rows = [
        (
            str(model),
            text(one.dr),
            text(one.snips),
            text(one.ips),
            text(one.change),
            f"{one.effective_lists:.0f}",
        )
        for model, one in found.items()
    ]
    echo_table(("MODEL", "DR", "SNIPS", "IPS", "DR LESS UN-ADAPTED", "EFFECTIVE LISTS"), rows)
    click.echo(
        f"\nclicks a list at the first half of its places, with 95 % intervals; the drafted lists have "
        f"{recorded_clicks(lists):.3f}. "
        f"{lists.uses['used']} drafted lists of {len(set(lists.people))} people"
    )
    left = {use: count for use, count in lists.uses.items() if count and use != "used"}
    if left:
        click.echo("left out: " + ", ".join(f"{count} {use}" for use, count in left.items()))
    for model, one in found.items():
        for warning in warnings(model, one):
            click.echo(f"warning: {warning}", err=True)


def judged_as_dict(judged: Judged) -> dict[str, Any]:
    """The estimates of learners as plain JSON."""
    found = as_dict(judged.space, judged.lists, judged.estimates, judged.exponent)
    for one in found["models"]:
        one["prequential"] = one["model"] in judged.learners
    return found | {"not_judged": dict(judged.without)}


def show_judged(judged: Judged) -> None:
    """Print the estimates of learners."""
    show(judged.lists, judged.estimates)
    click.echo(
        f"{', '.join(judged.learners) or 'no learner'}: each list by the model from before it was learned. "
        "Versions are judged as they are"
    )
    for learner, reason in judged.without.items():
        click.echo(f"{learner} is not judged: {reason}")
