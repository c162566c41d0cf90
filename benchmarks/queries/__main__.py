"""What an adapter gains on queries that it never learned from: `python -m benchmarks.queries`."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from kinstream.producers.simulated.searchers import MODELS
from kinstream.streams.errors import SettingsError

LABELS: Final = "labels"


@click.command()
@click.option(
    "--from",
    "source",
    default="documentation",
    show_default=True,
    metavar="documentation|file:PATH",
    help="The Python packages that are installed; or an NPZ file with `queries` and `items` (n, d), item i the answer "
    "to query i, and with `query_texts` and `item_texts` for BM25.",
)
@click.option(
    "--learner",
    "learners",
    multiple=True,
    metavar='KIND|{"kind": KIND, ...}',
    help="A learner of a similarity, with settings as JSON. [default: adapter]",
)
@click.option(
    "--learn-from",
    type=click.Choice([LABELS, *MODELS]),
    default="position",
    show_default=True,
    help="labels: every query with its item; or clicks of simulated users, by position or as a cascade.",
)
@click.option("--lists", type=click.IntRange(min=1), default=10_000, show_default=True, help="Lists shown.")
@click.option(
    "--noise", default=0.02, show_default=True, help="Probability of a click on what is irrelevant."
)
@click.option("--poisoned", default=0.0, show_default=True, help="Share of lists clicked to do harm.")
@click.option(
    "--popular", default=0.0, show_default=True, help="Probability of a click on a well-known item."
)
@click.option(
    "--batch", is_flag=True, help="Also the adapter that libraries fit, to the labels, in 30 epochs."
)
@click.option("--splits", type=click.IntRange(min=1), default=3, show_default=True, help="Random splits.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first split.")
@click.option("--test-share", default=0.36, show_default=True, help="Share of the queries to measure on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def queries(
    source: str,
    learners: tuple[str, ...],
    learn_from: str,
    lists: int,
    noise: float,
    poisoned: float,
    popular: float,
    splits: int,
    seed: int,
    test_share: float,
    *,
    batch: bool,
    as_json: bool,
) -> None:
    """Rank all items for queries that no learner has seen, and for those that were asked, before and after learning.

    Users are simulated: they see the 20 items that are nearest in the embedding, and click. Beside the learners stand
    counters of clicks, and where there are texts BM25 and its fusion with the similarity.

    \b
    Examples:
      python -m benchmarks.queries
      python -m benchmarks.queries --from file:search.npz --learn-from labels --batch
      python -m benchmarks.queries --learner adapter --learner '{"kind": "adapter", "rank": 64}' --poisoned 0.2
    """
    from benchmarks.queries.compare import summarised
    from benchmarks.queries.sources import opened
    from kinstream.cli.views.tables import echo_table
    from kinstream.producers.simulated.searchers import Searchers

    people = None
    if learn_from != LABELS:
        people = Searchers(model=learn_from, noise=noise, poisoned=poisoned, popular=popular)
    contenders = {name: _contender(name) for name in learners or ("adapter",)}
    if not 0.0 < test_share < 1.0:
        raise SettingsError(f"--test-share must be between 0 and 1, not {test_share}")
    corpus = opened(source)
    tested = max(1, round(test_share * len(corpus.queries)))
    of: Any = (corpus.queries, corpus.items, range(seed, seed + splits), tested, contenders, people, lists)
    found = summarised(*of, batch=batch, texts=corpus.texts)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    header = ("METRIC", "NEVER ASKED", "CHANGE", "ASKED", "CHANGE", *(f"RECALL@{k}" for k in (1, 10, 100)))
    echo_table(header, [_line(row) for row in found])
    click.echo(
        f"\nNDCG@10, and recall of queries never asked: {tested} queries of {len(corpus.queries)} that nothing was "
        f"learned from, and as many others at most; {splits} splits"
    )


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
        cells += [f"{of['ndcg_at_10']:.3f}", change]
    return [row["metric"], *cells, *(f"{value:.3f}" for value in row["recall"].values())]


if __name__ == "__main__":
    queries()
