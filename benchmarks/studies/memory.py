"""Which memory of what was chosen is better beside the map of `ranking`, for queries that come again and for others.

Corpora of `benchmarks.real_embeddings`. Of 3,000 queries half are never asked; the others are asked in proportion to
rank^-.9, 6,000 times. People see twenty items by similarity, or by half and half of similarity and BM25. What is
printed are changes of NDCG@10 against that ranking, in percent: of queries never asked, of those asked, each as often
as it was asked, and of 400 of these with a word left out ("reworded"). "ranking" is the learner as it is, with its
memory of the very same queries, as a store of a hundred candidates serves it, and "map" without. The forms below are
beside that map; their weight is learned by the learner's own `Weights`, from what each says before a list is learned.

- shares: clicks on the item for this query, each weighed by 1 / examined, of all clicks for this query and two more.
- rates: clicks on the item for this query, by how often it was examined and once more, from its first click on.
- near shares, near rates: the same sums over all queries, weighed by exp(-(1 - cosine) / .03).
- bits: near shares, with cosines told from the signs of 512 random directions, so that no vector is kept.
- shift: the mapped query plus sum k x / (2 + sum k) over clicked items x, with k of "near shares"; no own signal.
- shift signal: the product of that sum with the item, as a signal of its own.
- shares alone: shares and the similarity, without the map. shift alone: the query as it is plus that sum.

Conditions: 2 and 5 % of wrong clicks, a fifth poisoned (20 accounts), and wrong credit: in each list with a click on
the right item four others of the list count as clicked, drawn in proportion to how places are examined.

`--forms` without names measures the learner alone, without reworded queries. With `--taken-back`, each click on another
item than the right one is taken back after 500 more lists, as late retractions are, if so many come.

`--cost` prints what 100,000 queries of 16 items take, and how long a look-up takes on one thread, with a hundred near.

Examples:
  python -m benchmarks.studies.memory --corpora scientific --seeds 0 1
  python -m benchmarks.studies.memory --corpora scientific mathematics --seeds 40 41 42 --forms
  python -m benchmarks.studies.memory --cost
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_embeddings.corpora import QUERY_TOKENS
from benchmarks.studies.ranking import HALF, corpus_of
from kinstream.evaluation.queries.signals import CANDIDATES, Signals
from kinstream.evaluation.queries.split import Split, split
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.memory import ITEMS
from kinstream.learners.ranking.remembered import Remembered as Built
from kinstream.learners.ranking.remembered import bits_of
from kinstream.learners.ranking.weights import Weights, Whole
from kinstream.processors.base.builder import Origin
from kinstream.processors.base.id_table import name_hashes
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.minilm import Encoder
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import LIST_RULE, ClickBlock, Feedback, ItemBlock
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY, TEXT

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

ASKED, LISTS, PLACES, BLOCK = 1_500, 6_000, 20, 50
#: Lists after which what is taken back comes.
LATER: Final = 500
#: Queries whose words are changed, of those that were asked; the kernel's width, and its least value that counts.
REWORDED, WIDTH, LEAST = 400, 0.03, 0.01
#: Clicks that a share is drawn to nothing by, and examinations that a rate is.
DOUBT, VIEWS = 2.0, 1.0
CLICKED: Final = 3.0
PEOPLE: Final = Searchers(demand=0.9)
CONDITIONS: Final = {
    "2 % wrong clicks": PEOPLE,
    "5 % wrong clicks": replace(PEOPLE, noise=0.05),
    "a fifth poisoned": replace(PEOPLE, poisoned=0.2),
    "wrong credit": PEOPLE,
}
#: What is told of queries: that they are the same, their cosine, or the signs of some directions.
SAME, NEAR, BITS = "same", "near", "bits"
#: Whether the map is beside it, which queries count, and how it is used.
FORMS: Final = {
    "shares": (True, SAME, "shares"),
    "rates": (True, SAME, "rates"),
    "near shares": (True, NEAR, "shares"),
    "near rates": (True, NEAR, "rates"),
    "bits": (True, BITS, "shares"),
    "shift": (True, NEAR, "shift"),
    "shift signal": (True, NEAR, "shift signal"),
    "shares alone": (False, SAME, "shares"),
    "shift alone": (False, NEAR, "shift"),
}
Near = dict[str, dict[int, float]]
DIRECTIONS: Final = 512


class Remembered:
    """Clicks on items by the query that was asked.

    Parameters
    ----------
    queries, items : (q, d) that can be asked, and (n, d), of length 1.
    """

    def __init__(self, queries: Rows, items: Rows) -> None:
        shape = len(queries), len(items)
        self._queries, self.items = queries, items
        #: Clicks weighed by 1 / examined, as they are, and examinations since the first click.
        self.unbiased, self.clicks, self.seen = (np.zeros(shape, np.float32) for _ in range(3))
        self._sums, self._total = np.zeros(queries.shape, np.float32), np.zeros(len(queries), np.float32)
        self._known = np.zeros(len(queries), np.bool_)
        self._directions = (
            np.random.default_rng(0).normal(size=(queries.shape[1], DIRECTIONS)).astype(np.float32)
        )

    def add(self, query: int, shown: Numbers, clicked: NDArray[np.bool_], examined: Rows) -> None:
        """A list in the order of the log."""
        share = min(1.0, CLICKED / clicked.sum())
        self.seen[query, shown] += np.where(clicked | (self.clicks[query, shown] > 0.0), examined, 0.0)
        self.clicks[query, shown] += share * clicked
        weights = share * clicked / examined
        self.unbiased[query, shown] += weights
        self._sums[query] += weights @ self.items[shown]
        self._total[query] += weights.sum()
        self._known[query] = True

    def says(self, how: str, weights: Mapping[int, float], shown: Numbers | slice) -> Rows | None:
        """What it says of items, given the weights of queries; None where it knows none of them."""
        rows = [row for row in weights if self._known[row]]
        if not rows:
            return None
        k = np.array([weights[row] for row in rows], np.float32)
        if how in ("shift", "shift signal"):
            return np.asarray(self.shift(rows, k) @ self.items[shown].T)
        if how == "shares":
            return np.asarray(k @ self.unbiased[rows][:, shown] / (DOUBT + k @ self._total[rows]))
        return np.asarray(k @ self.clicks[rows][:, shown] / (VIEWS + k @ self.seen[rows][:, shown]))

    def shift(self, rows: list[int], k: Rows) -> Rows:
        return np.asarray(k @ self._sums[rows] / (DOUBT + k @ self._total[rows]))

    def near(self, queries: Rows, same: Numbers) -> list[Near]:
        """What each of some queries (m, d) has of the asked ones, by what is told of them.

        Parameters
        ----------
        same : (m,) place of the very same query, -1 for none.
        """
        cosines = np.asarray(queries @ self._queries.T)
        signs, own = (np.sign(rows @ self._directions) for rows in (queries, self._queries))
        told = np.cos(np.pi * (1.0 - np.asarray(signs @ own.T) / DIRECTIONS) / 2.0)
        found: list[Near] = [{SAME: {place: 1.0} if place >= 0 else {}} for place in same.tolist()]
        for how, values in ((NEAR, cosines), (BITS, told)):
            for one, row in zip(found, np.exp((values - 1.0) / WIDTH), strict=True):
                there = np.flatnonzero(row > LEAST)
                one[how] = dict(zip(there.tolist(), row[there].tolist(), strict=True))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Queries that are measured.

    Parameters
    ----------
    queries, text : (m, d), and BM25 (m, n) or None.
    relevant, worth : (m,) row of the answer, and how much each query counts.
    same : (m,) place among those that can be asked, -1 where the memory does not know this very query.
    """

    queries: Rows
    text: Rows | None
    relevant: Numbers
    worth: Rows
    same: Numbers

    def part(self, use: NDArray[np.bool_]) -> Asked:
        """Some of them (m,)."""
        text = None if self.text is None else self.text[use]
        return Asked(self.queries[use], text, self.relevant[use], self.worth[use], self.same[use])

    def ndcg(self, blend: Blend, signals: Mapping[str, Rows], *, beside: bool = True) -> float:
        """Of the best by the adapted similarity, by text, and, beside these, of what is remembered."""
        there = np.zeros(signals[ADAPTED].shape, np.bool_)
        for name in (ADAPTED, TEXT):
            if name in signals:
                best = np.argpartition(-signals[name], CANDIDATES, axis=1)[:, :CANDIDATES]
                np.put_along_axis(there, best, True, axis=1)
        if beside and REMEMBERED in signals:
            there |= signals[REMEMBERED] > 0.0
        value = np.zeros(there.shape)
        for name, weight, unit in zip(blend.names, blend.weights, blend.units, strict=True):
            if name not in signals or not weight:
                continue
            one = np.where(there, signals[name], np.nan)
            wide = np.nanmax(one, axis=1) - np.nanmin(one, axis=1)
            scale = np.full(len(one), unit) if unit else np.where(wide > 0.0, wide, 1.0)
            value += weight * signals[name] / scale[:, None]
        rows = np.arange(len(value))
        value[~there] = -np.inf
        own = value[rows, self.relevant]
        rank = np.where(
            there[rows, self.relevant], np.count_nonzero(value >= own[:, None], axis=1), len(value[0])
        )
        gain = np.where(rank <= 10, 1.0 / np.log2(1.0 + rank), 0.0)
        return float(gain @ self.worth / self.worth.sum())


class World:
    """A corpus, the lists that people see, and the queries that are measured.

    Parameters
    ----------
    with_text : whether people see half and half of similarity and BM25.
    """

    def __init__(self, name: str, with_text: bool, encode: Encoder | None) -> None:
        self.name, self.with_text = name, with_text
        self._texts_of = corpus_of(name, True)
        self.corpus = self._texts_of if with_text else corpus_of(name, False)
        self.signals = Signals(self.corpus)
        self._encode = encode
        self.start = HALF if with_text else {SIMILARITY: 1.0}

    def log(self, condition: str, seed: int) -> tuple[Split, Searches, dict[str, Rows]]:
        """Who is asked, the lists, and the scores of what is shown."""
        corpus = self.corpus
        parts = split(corpus.queries, corpus.items, seed, ASKED, ASKED)
        best, scores = self.signals.shown(parts.learned, PLACES)
        found = parts.searches(CONDITIONS[condition], LISTS, seed, best)
        if condition == "wrong credit":
            draw = np.random.default_rng([seed, 77])
            right = found.items == parts.learned[found.query][:, None]
            # As often as places are examined: the smallest of exponential variables with these rates.
            chance = draw.exponential(size=right.shape) * np.arange(1.0, PLACES + 1.0) ** PEOPLE.bias
            four = np.argsort(np.where(right, np.inf, chance), axis=1)[:, :4]
            other = np.zeros_like(right)
            np.put_along_axis(other, four, True, axis=1)
            clicked = found.clicked | (other & (found.clicked & right).any(axis=1)[:, None])
            found = replace(found, clicked=clicked)
        return parts, found, {name: one[found.query] for name, one in scores.items()}

    def measured(self, parts: Split, found: Searches, seed: int, reworded: bool) -> dict[str, Asked]:
        """Queries never asked, asked again, and, if wanted, reworded."""
        times = np.bincount(found.query, minlength=len(parts.learned))
        again = np.flatnonzero(times)
        bm25, text = self.signals.bm25, self.signals.text

        def of(rows: Numbers) -> Rows | None:
            return None if text is None else text(rows)

        queries, nobody = self.corpus.queries, np.full(len(parts.tested), -1)
        measured = {
            "never": Asked(
                queries[parts.tested], of(parts.tested), parts.tested, np.ones(len(parts.tested)), nobody
            ),
            "again": Asked(
                queries[parts.learned[again]], of(parts.learned[again]), parts.learned[again],
                times[again].astype(np.float64), again,
            ),
        }  # fmt: skip
        if not reworded:
            return measured
        few = np.sort(np.random.default_rng([seed, 78]).permutation(again)[:REWORDED])
        texts = self._texts_of.texts
        assert texts is not None and self._encode is not None
        words = [_one_less(texts[0][row], seed + row) for row in parts.learned[few].tolist()]
        made = np.asarray(self._encode(words, QUERY_TOKENS), np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        measured["reworded"] = Asked(
            made,
            None if bm25 is None else bm25(words),
            parts.learned[few],
            times[few].astype(np.float64),
            np.full(len(few), -1),
        )
        return measured


def _one_less(text: str, seed: int) -> str:
    """A text without one of its words."""
    words = text.split()
    if len(words) > 2:
        del words[int(np.random.default_rng([seed, 79]).integers(len(words)))]
    return " ".join(words)


def learned(
    world: World,
    parts: Split,
    found: Searches,
    scores: dict[str, Rows],
    forms: Sequence[str],
    *,
    taken_back: bool,
) -> tuple[Ranking, Ranking, Remembered, dict[str, Weights]]:
    """The learner as it is, its map alone, what is remembered, and the weights of each form."""
    queries, items = world.corpus.queries[parts.learned], world.corpus.items
    builder, whole, model = (
        Clicks(rules=(LIST_RULE,)),
        Ranking(world.start, remember=10_000),
        Ranking(world.start),
    )
    memory = Remembered(queries, items)
    near = memory.near(queries, np.arange(len(queries)))
    weights = {form: Weights(world.start) for form in forms}
    examined = np.arange(1.0, PLACES + 1.0) ** -PEOPLE.bias
    events: list[Any] = [*catalogue("s", items), *click_blocks("s", found, queries, BLOCK, scores=scores)]
    done, wrong = 0, found.clicked & (found.items != parts.learned[found.query][:, None])
    for offset, event in enumerate(events):
        now = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
        blocks = list(builder.process(event, Origin(offset=offset, append_ms=now)).blocks)
        if weights and not isinstance(event, ItemBlock):
            rows = np.arange(done, done + len(event))
            rows, done = rows[found.clicked[rows].any(axis=1)], done + len(event)
            _weigh(weights, _of_lists(memory, model, near, queries, found, scores, rows, examined))
        for block in blocks:
            model.learn(block)
            whole.learn(block)
        if (
            taken_back
            and (earlier := offset - LATER // BLOCK) >= 0
            and isinstance(events[earlier], ClickBlock)
        ):
            for one in _taken_back(events[earlier], wrong):
                builder.process(one, Origin(offset=offset, append_ms=now))
    return whole, model, memory, weights


def _taken_back(event: ClickBlock, wrong: NDArray[np.bool_]) -> Iterator[Feedback]:
    """What takes back the wrong clicks of lists, whose ids end with their numbers."""
    for i, list_id in enumerate(event.list_ids):
        for place in np.flatnonzero(wrong[int(list_id.rpartition("-")[2])]).tolist():
            item = event.ids[event.item[event.starts[i] + place]]
            yield Feedback(event.space, list_id, item, None, 1.0, 0, retract=True)


def _weigh(weights: dict[str, Weights], wholes: Iterator[tuple[str, Whole]]) -> None:
    for form, whole in wholes:
        if form in weights:
            weights[form].learn(whole)


def _of_lists(
    memory: Remembered,
    model: Ranking,
    near: list[Near],
    queries: Rows,
    found: Searches,
    scores: dict[str, Rows],
    rows: Numbers,
    examined: Rows,
) -> Iterator[tuple[str, Whole]]:
    """What each form says of lists before it knows them; they are remembered then."""
    columns: dict[str, list[Rows]] = {}
    for row in rows.tolist():
        query, shown = int(found.query[row]), found.items[row]
        said = dict(scores_of(memory, near[query], shown))
        plain = queries[query] @ memory.items[shown].T
        moved = model.signals(queries[query][None], memory.items[shown])[ADAPTED][0]
        for form, (mapped, which, how) in FORMS.items():
            one = said[which, how]
            adapted = moved if mapped else plain
            if how == "shift":
                parts = {ADAPTED: adapted if one is None else adapted + one, SIMILARITY: plain}
            else:
                nothing = np.full(len(shown), np.nan)
                parts = {ADAPTED: adapted, SIMILARITY: plain, REMEMBERED: nothing if one is None else one}
            parts |= {name: score[row] for name, score in scores.items()}
            columns.setdefault(form, []).append(np.stack([parts[name] for name in sorted(parts)], axis=1))
        memory.add(query, shown, found.clicked[row], examined)
    actors = np.where(found.poisoner >= 0, found.poisoner + 1, np.arange(len(found)) + 1_000_000)
    for form, parts_of in columns.items():
        names = tuple(
            sorted({ADAPTED, SIMILARITY, *scores} | ({REMEMBERED} if FORMS[form][2] != "shift" else set()))
        )
        yield (
            form,
            Whole(
                names,
                np.concatenate(parts_of).astype(np.float64),
                np.arange(len(rows) + 1, dtype=np.int32) * np.int32(PLACES),
                found.clicked[rows].reshape(-1),
                _keys(found.query[rows]),
                _keys(actors[rows]),
                PEOPLE.bias,
                np.ones(len(rows) * PLACES),
            ),
        )


def scores_of(
    memory: Remembered, near: Near, shown: Numbers | slice
) -> Iterator[tuple[tuple[str, str], Rows | None]]:
    """What is said of items by which queries count, and how."""
    for _, which, how in FORMS.values():
        yield (which, how), memory.says(how, near[which], shown)


def _adapted(model: Ranking, queries: Rows) -> Rows:
    """Mapped queries of length 1."""
    moved = np.asarray(model.scale(queries) @ model.W)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))


def as_served(model: Ranking, asked: Asked, signals: Mapping[str, Rows]) -> float:
    """NDCG@10 where the learner ranks what its memory knows by one blend, and the rest by the other."""
    assert model.remembered is not None
    names = name_hashes([str(row) for row in range(len(signals[ADAPTED][0]))])
    recalled = [model.remembered.recall(query) for query in asked.queries]
    known, found = np.array([one is not None for one in recalled]), 0.0
    for use, blend in ((known, model.known_blend), (~known, model.blend)):
        if use.any():
            own = {name: one[use] for name, one in signals.items()}
            if use is known:
                own[REMEMBERED] = np.stack([one.rates(names) for one in recalled if one is not None])
            part = asked.part(use)
            found += part.ndcg(blend, own, beside=False) * part.worth.sum() / asked.worth.sum()
    return found


def _keys(numbers: Numbers) -> NDArray[np.uint64]:
    return (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def compared(
    world: World, condition: str, seed: int, forms: Sequence[str], *, taken_back: bool
) -> dict[str, Any]:
    """Changes in percent, by form and by the queries that are measured."""
    parts, found, scores = world.log(condition, seed)
    whole, model, memory, weights = learned(world, parts, found, scores, forms, taken_back=taken_back)
    items = world.corpus.items
    changes: dict[str, dict[str, float]] = {form: {} for form in ("ranking", "map", *forms)}
    had = {}
    for name, asked in world.measured(parts, found, seed, bool(forms)).items():
        plain = np.asarray(asked.queries @ items.T)
        moved = np.asarray(_adapted(model, asked.queries) @ items.T)
        text = {} if asked.text is None else {TEXT: asked.text}
        had[name] = asked.ndcg(Blend.fixed(world.start), {ADAPTED: plain, SIMILARITY: plain} | text)

        def change(
            blend: Blend, signals: dict[str, Rows], asked: Asked = asked, before: float = had[name]
        ) -> float:
            return round(100.0 * (asked.ndcg(blend, signals) / before - 1.0), 2)

        changes["map"][name] = change(model.blend, {ADAPTED: moved, SIMILARITY: plain} | text)
        own = {ADAPTED: np.asarray(_adapted(whole, asked.queries) @ items.T), SIMILARITY: plain} | text
        changes["ranking"][name] = round(100.0 * (as_served(whole, asked, own) / had[name] - 1.0), 2)
        if not forms:
            continue
        said: dict[tuple[str, str], list[Rows]] = {}
        for near in memory.near(asked.queries, asked.same):
            for key, one in dict(scores_of(memory, near, slice(None))).items():
                said.setdefault(key, []).append(np.zeros(len(items), np.float32) if one is None else one)
        for form in forms:
            mapped, which, how = FORMS[form]
            one, adapted = np.stack(said[which, how]), moved if mapped else plain
            signals = {ADAPTED: adapted, SIMILARITY: plain} | text
            signals |= {ADAPTED: adapted + one} if how == "shift" else {REMEMBERED: one}
            changes[form][name] = change(weights[form].blend, signals)
    served = {
        form: dict(zip(w.blend.names, w.blend.weights.round(2).tolist(), strict=True))
        for form, w in weights.items()
    }
    return {"had": {name: round(one, 4) for name, one in had.items()}} | changes | {"weights": served}


def cost(m: int = 100_000, d: int = 384, near: int = 100) -> dict[str, Any]:
    """Megabytes of m remembered queries, and milliseconds of a look-up with the rates of a hundred items."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(m // near, d))
    queries = [centre + 0.05 * draw.normal(size=(near, d)) for centre in centres]
    sums = [draw.uniform(size=(m, ITEMS)).astype(np.float32) for _ in range(2)]
    items = draw.integers(1, 1 << 63, size=(m, ITEMS), dtype=np.uint64)
    bits = np.concatenate([bits_of(rows) for rows in queries])
    memory, times = Built(bits, items, sums[0], sums[1]), []
    for rows in queries[:500]:
        begin = time.perf_counter()
        found = memory.recall(rows[0])
        assert found is not None
        found.rates(items[:CANDIDATES, 0])
        times.append(1e3 * (time.perf_counter() - begin))
    middle, late = np.quantile(times, (0.5, 0.9)).round(3).tolist()
    size = sum(one.nbytes for one in memory.arrays().values()) / 1e6
    return {"MB": size, "median ms": middle, "90 % ms": late}


def main() -> None:
    """Print a line of JSON for each corpus, ranking that people see, condition and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", nargs="+", default=["scientific"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--shown", nargs="+", default=["similarity"], choices=["similarity", "half and half"])
    parser.add_argument("--conditions", nargs="+", default=[*CONDITIONS], choices=[*CONDITIONS])
    parser.add_argument("--forms", nargs="*", default=[*FORMS], choices=[*FORMS])
    parser.add_argument("--taken-back", action="store_true")
    parser.add_argument("--cost", action="store_true")
    a = parser.parse_args()
    with one_blas_thread():
        if a.cost:
            print(json.dumps(cost()))
            return
        encode = Encoder() if a.forms else None
        for name in a.corpora:
            for shown in a.shown:
                world = World(name, shown != "similarity", encode)
                for seed in a.seeds:
                    for condition in a.conditions:
                        line = {"corpus": name, "shown": shown, "condition": condition, "seed": seed}
                        found = compared(world, condition, seed, a.forms, taken_back=a.taken_back)
                        print(json.dumps(line | found), flush=True)


if __name__ == "__main__":
    main()
