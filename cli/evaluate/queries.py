"""`kinstream evaluate queries`: which ranking finds what is asked for, on queries that nothing was learned from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kinstream.cli.shared.context import settings_of
from kinstream.producers.simulated.searchers import MODELS
from kinstream.streams.errors import SettingsError

LABELS: Final = "labels"
#: Share of the queries to measure on.
TESTED: Final = 0.36


@click.command()
@click.option(
    "--from",
    "source",
    default="documentation",
    show_default=True,
    metavar="documentation|minilm|file:PATH|events:PATH|space:NAME",
    help="The Python packages that are installed, by a weak embedder or by all-MiniLM-L6-v2; an NPZ file with "
    "`queries` and `items`, of which `judgements` (query, item, grade) say what answers, else item i query i, and with "
    "`query_texts` and `item_texts` for BM25; or "
    "recorded lists and their scores: a file of JSON events, a line each, or the events of a space.",
)
@click.option(
    "--learner",
    "learners",
    multiple=True,
    metavar='KIND|{"kind": KIND, ...}',
    help="A learner of a similarity, with settings as JSON. [default: adapter and ranking]",
)
@click.option(
    "--learn-from",
    type=click.Choice([LABELS, *MODELS]),
    default="position",
    show_default=True,
    help="labels: every query with its item; or clicks of simulated users, by position or as a cascade.",
)
@click.option("--lists", type=click.IntRange(min=1), default=10_000, show_default=True, help="Lists shown.")
@click.option("--poisoned", default=0.0, show_default=True, help="Share of lists clicked to do harm.")
@click.option(
    "--batch", is_flag=True, help="Also the adapter that libraries fit, to the labels, in 30 epochs."
)
@click.option(
    "--exponent",
    type=click.FloatRange(min=0.0, max=4.0),
    default=1.0,
    show_default=True,
    help="Recorded lists: users look at place k, from 1, with probability k^-EXPONENT.",
)
@click.option("--splits", type=click.IntRange(min=1), default=3, show_default=True, help="Random splits.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first split.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def queries(
    ctx: click.Context,
    source: str,
    learners: tuple[str, ...],
    learn_from: str,
    lists: int,
    poisoned: float,
    exponent: float,
    splits: int,
    seed: int,
    *,
    batch: bool,
    as_json: bool,
) -> None:
    """Rank all items for queries that no learner has seen, and for those that were asked, before and after learning.

    Users are simulated: they see the 20 best items by similarity, or where there are texts by similarity and BM25, half
    and half; and they click. Beside the learners stand what needs no learning, and counters of clicks. Recorded lists
    are read once: each ranking orders what was shown before anything is learned from it.

    \b
    Examples:
      kinstream evaluate queries
      kinstream evaluate queries --from file:search.npz --learn-from labels --batch
      kinstream evaluate queries --from space:docs
      kinstream evaluate queries --learner adapter --learner '{"kind": "adapter", "rank": 64}' --poisoned 0.2
    """
    from kinstream.evaluation.queries.compare import SearchTrial, summarised
    from kinstream.evaluation.queries.recommendation import recommended
    from kinstream.evaluation.queries.recorded import recorded
    from kinstream.evaluation.queries.sources import opened
    from kinstream.producers.simulated.searchers import Searchers

    people = None
    if learn_from != LABELS:
        people = Searchers(model=learn_from, poisoned=poisoned)
    kinds = learners or ("adapter", *(() if people is None else ("ranking",)))
    contenders = {name: _contender(name) for name in kinds}
    events = _events(ctx, source)
    if events is not None:
        found, number = recorded(events, contenders, exponent)
        _show(found, recommended(found, list(contenders)), f"{number} lists", as_json=as_json)
        return
    corpus = opened(source)
    tested = max(1, round(TESTED * corpus.answered))
    found = summarised(
        corpus, range(seed, seed + splits), SearchTrial(contenders, people, lists, tested, batch)
    )
    about = (
        f"{tested} queries of {corpus.answered} that nothing was learned from, and as many others at most; "
        f"{splits} splits"
    )
    _show(found, recommended(found, list(contenders)), about, as_json=as_json)


def _show(rows: list[dict[str, Any]], advice: str, about: str, *, as_json: bool) -> None:
    from kinstream.cli.views.tables import echo_table

    if as_json:
        click.echo(json.dumps({"rows": rows, "recommendation": advice}, indent=2))
        return
    recall = [f"RECALL@{k}" for k in rows[0].get("recall", ())]
    echo_table(("RANKING", "NEVER ASKED", "CHANGE", "ASKED", "CHANGE", *recall), [_line(row) for row in rows])
    (had,) = [row["metric"] for row in rows if row["had"]]
    click.echo(f"\nNDCG@10, and changes against {had}: {about}\n{advice}")


def _events(ctx: click.Context, source: str) -> Iterator[object] | None:
    """The events of recorded lists; None for another source."""
    from kinstream.cli.evaluate.counterfactual import space_events
    from kinstream.evaluation.queries.sources import lines_of

    kind, _, name = source.partition(":")
    if kind == "space":
        return (one.record for one in space_events(settings_of(ctx), name, None, None))
    return lines_of(Path(name)) if kind == "events" else None


def _contender(text: str) -> tuple[str, dict[str, Any]]:
    if not text.startswith("{"):
        return text, {}
    try:
        settings = dict(json.loads(text))
        return str(settings.pop("kind")), settings
    except (ValueError, KeyError) as error:
        raise SettingsError(f"--learner {text}: not JSON with a kind: {error}") from error


def _line(row: dict[str, Any]) -> list[str]:
    cells = []
    for of in (row, row["asked"]):
        change = f"{of['change']:+.1f} ± {of['error']:.1f} %" if of["change"] is not None else ""
        cells += ["" if of["ndcg_at_10"] is None else f"{of['ndcg_at_10']:.3f}", change]
    return [row["metric"], *cells, *(f"{value:.3f}" for value in row.get("recall", {}).values())]
