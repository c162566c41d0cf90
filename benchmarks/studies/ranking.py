"""What `ranking` gains where people see half and half of similarity and BM25, and where they have more signals.

- text: corpora of `benchmarks.real_embeddings`, NDCG@10 of 1,500 queries that nobody asked, among the best 100 by each
  signal, after 5,268 lists of twenty. Changes against half and half, which people see. Then the same with a fifth of
  the lists by 20 people who click what is wrong.
- alone: people see the similarity, and lists have no scores: `ranking` beside `adapter`.
- signals: answers depend on similarity, BM25, age and a purchase rate, and not on popularity; people see equal shares.
  Changes against equal shares, and against fixed weights in hindsight: `best` are found on the tested queries
  themselves, a bound; `fitted` are the likeliest ones of one half of these, measured on the other.
- nothing: the ranking that people have, similarity or half and half, is right. Its first item is the answer of each
  query (`first`), or answers are drawn with odds by its values (`drawn`), so that no ranking is better.
- titles: as text without poison, where items have a second vector, that of the function's name: fixed thirds, and
  `ranking` with its similarity among the scores, and without.
- useless: ten signals that say nothing, beside similarity and BM25: what they cost.
- scale: BM25 becomes tenfold after 2,000 of about 2,500 clicked lists: what that loses against the same lists without.

Examples:
  python -m benchmarks.studies.ranking text --corpora scientific --seeds 10 11 12
  python -m benchmarks.studies.ranking signals --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_embeddings.corpora import COMMON, DOCSTRINGS, functions_in, opened, texts
from kinstream.evaluation.queries.baselines import Scores as ScoresOf
from kinstream.evaluation.queries.measures import ranked
from kinstream.evaluation.queries.signals import HALF_AND_HALF, Signals, blended
from kinstream.evaluation.queries.sources import Corpus
from kinstream.evaluation.queries.split import Split, split
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.learner import Ranking
from kinstream.producers.simulated.minilm import Encoder
from kinstream.producers.simulated.searchers import Searchers, searches
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.scores import Scores
from kinstream.streams.signals import ADAPTED, SIMILARITY, TEXT

Rows = NDArray[np.floating[Any]]
Values = dict[str, Rows]

TESTED, LISTS = 1_500, 5_268
HALF: Final = {SIMILARITY: 0.5, TEXT: 0.5}
USELESS: Final = 10
PLACES: Final = 20
#: How much the present ranking says of what is right where answers are drawn by it.
SHARPNESS: Final = 20.0
TITLE: Final = "title"
TITLE_TOKENS: Final = 32
THIRDS: Final = Blend.fixed({SIMILARITY: 1.0, TEXT: 1.0, TITLE: 1.0})
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
#: Steps of Newton to the likeliest weights.
STEPS: Final = 12


def corpus_of(name: str, with_texts: bool = True) -> Corpus:
    """A corpus by name, with the texts that were embedded."""
    found = opened(name)
    if not with_texts:
        return Corpus(found.queries, found.items)
    if name.removesuffix(COMMON) == "scientific":
        rows = _scientific()
        return Corpus(found.queries, found.items, ([r["query"] for r in rows], [r["item"] for r in rows]))
    both = texts(name.removesuffix(COMMON))
    return Corpus(found.queries, found.items, ([*both], [*both.values()]))


def _scientific() -> list[dict[str, str]]:
    """Name, query and item of each function."""
    path = Path(os.environ.get("KINSTREAM_DATA", "../shared/data")) / "minilm_docs.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def titles_of(name: str, corpus: Corpus) -> Rows:
    """(n, 384) MiniLM of the words of each function's name."""
    if name == "scientific":
        found = [row["name"] for row in _scientific()]
    else:
        assert corpus.texts is not None
        every = [one for package in DOCSTRINGS[name] for one in functions_in(package)]
        named = {one.query: one.name for one in reversed(every)}
        found = [named[query] for query in corpus.texts[0]]
    vectors = Encoder()([" ".join(_WORD.findall(one)) for one in found], TITLE_TOKENS)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def titles(name: str, seed: int) -> dict[str, Any]:
    """NDCG@10 of half and half, and changes against it."""
    corpus = corpus_of(name)
    own = Signals(corpus)
    assert own.text is not None
    every = {
        TEXT: np.concatenate([own.text(rows) for rows in np.array_split(np.arange(len(corpus.queries)), 20)])
    }
    own.text = every[TEXT].__getitem__
    every[TITLE] = np.asarray(corpus.queries @ titles_of(name, corpus).T)
    parts = split(corpus.queries, corpus.items, seed, len(corpus.queries) - TESTED, TESTED)

    def ndcg(blend: Blend, mapped: ScoresOf) -> float:
        def values(rows: NDArray[Any]) -> Rows:
            signals = {SIMILARITY: own.similarity(rows), ADAPTED: mapped(rows)}
            signals |= {of: one[rows] for of, one in every.items()}
            return np.stack(
                [blended(blend, {of: one[at] for of, one in signals.items()}) for at in range(len(rows))]
            )

        return float(gains(values, parts).mean())

    best, scores = own.shown(parts.learned, PLACES)
    had = ndcg(HALF_AND_HALF, own.similarity)
    line = {"thirds": ndcg(THIRDS, own.similarity)}
    found = parts.searches(Searchers(), LISTS, seed, best)
    more = {TITLE: np.take_along_axis(every[TITLE][parts.learned], best, axis=1)}
    for which, said in (("ranking", scores), ("ranking with titles", scores | more)):
        model = Ranking(HALF)
        for block in parts.clicks(found, scores=said):
            model.learn(block)
        line[which] = ndcg(model.blend, own.mapped(partial(_cosines, model, model.W)))
    changed = {which: round(100.0 * (one / had - 1.0), 2) for which, one in line.items()}
    return {"had": round(had, 4)} | changed | {"weights": model.weights}


def compared(name: str, seeds: list[int], with_texts: bool, shares: list[float]) -> None:
    """Print a line for each seed and share of poison: changes of each ranking of new queries against what people have.

    Then one for each share of poison over all seeds.
    """
    corpus = corpus_of(name, with_texts)
    signals = Signals(corpus)
    if signals.text is not None:
        every = np.concatenate(
            [signals.text(rows) for rows in np.array_split(np.arange(len(corpus.queries)), 20)]
        )
        signals.text = every.__getitem__
    lines: dict[float, list[dict[str, float]]] = {share: [] for share in shares}
    for seed in seeds:
        parts = split(corpus.queries, corpus.items, seed, len(corpus.queries) - TESTED, TESTED)
        alone = {SIMILARITY: gains(signals.similarity, parts)}
        if signals.text is not None:
            alone |= {TEXT: gains(signals.text, parts)}
            alone |= {"half and half": gains(signals.blended(HALF_AND_HALF), parts)}
        had = [*alone.values()][-1]
        best, scores = signals.shown(parts.learned, PLACES)
        for poisoned in shares:
            found = parts.searches(Searchers(poisoned=poisoned), LISTS, seed, best)
            model = Ranking(HALF if with_texts else None)
            for block in parts.clicks(found, scores=scores):
                model.learn(block)
            query_map = partial(_cosines, model, model.W)
            both = {"adapter": gains(signals.mapped(query_map), parts)}
            if with_texts:
                half = Blend.fixed({ADAPTED: 0.5, TEXT: 0.5})
                both["half adapter, half text"] = gains(signals.blended(half, query_map), parts)
            both["ranking"] = gains(signals.blended(model.blend, query_map), parts)
            line = changes(alone | both, had)
            lines[poisoned].append(line)
            which = {"corpus": name, "seed": seed, "poisoned": poisoned, "had": round(float(had.mean()), 4)}
            print(json.dumps(which | line | {"weights": model.weights}), flush=True)
    for poisoned in shares:
        print(json.dumps({"corpus": name, "poisoned": poisoned} | summary(lines[poisoned])), flush=True)


def gains(scores: ScoresOf, parts: Split) -> Rows:
    """(q,) NDCG@10 of each tested query."""
    found: list[float] = []
    for rows in np.array_split(parts.tested, 6):
        for row, values in zip(rows, scores(rows), strict=True):
            found.append(ranked(_alone(values), np.array([row]), parts.judgements).ndcg)
    return np.array(found)


def _alone(values: Rows) -> ScoresOf:
    return lambda _: values[None]


def changes(found: dict[str, Rows], had: Rows) -> dict[str, float]:
    """Change of each mean in percent, that of `ranking` with its standard error over queries, and its worst bound."""
    usual = float(had.mean())
    line = {name: round(100.0 * (float(one.mean()) / usual - 1.0), 2) for name, one in found.items()}
    more = found["ranking"] - had
    best = max(float(found[name].mean()) for name in (SIMILARITY, TEXT, "half and half") if name in found)
    line["standard error"] = round(100.0 * float(more.std(ddof=1)) / np.sqrt(len(more)) / usual, 2)
    line["over the best of what is not learned"] = round(
        100.0 * (float(found["ranking"].mean()) / best - 1.0), 2
    )
    return line


def summary(lines: list[dict[str, float]]) -> dict[str, Any]:
    """Means over seeds; of `ranking` the deviation, the worst seed, and how many are above by two standard errors."""
    learned = np.array([line["ranking"] for line in lines])
    errors = np.array([line["standard error"] for line in lines])
    return {
        "seeds": len(lines),
        "means": {name: round(float(np.mean([line[name] for line in lines])), 2) for name in lines[0]},
        "deviation": round(float(learned.std(ddof=1)), 2) if len(lines) > 1 else None,
        "worst": float(learned.min()),
        "worst against the best of what is not learned": min(
            line["over the best of what is not learned"] for line in lines
        ),
        "above by two errors": int((learned > 2.0 * errors).sum()),
    }


def _cosines(model: Ranking, W: Rows, queries: Rows) -> Rows:
    """Mapped queries of length 1."""
    moved = np.asarray(model.scale(queries) @ W)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))


class Shop:
    """A corpus whose answers depend on more than its texts, and people who use it.

    Parameters
    ----------
    answers : "own": each query has its own item; "many": answers depend on age and a purchase rate; "first" and
        "drawn": on the fixed ranking alone.
    shares : of that ranking.
    """

    def __init__(
        self, corpus: Corpus, seed: int, answers: str = "own", shares: Mapping[str, float] = HALF
    ) -> None:
        draw = np.random.default_rng([seed, 99])
        text = Signals(corpus).text
        assert text is not None
        n = len(corpus.items)
        self.parts: Split = split(corpus.queries, corpus.items, seed, n - 800, 800)
        similar = np.asarray(corpus.queries @ corpus.items.T, np.float64)
        self.signals: Values = {SIMILARITY: similar, TEXT: np.asarray(text(np.arange(n)), np.float64)}
        self.answer = np.arange(n)
        if answers in ("first", "drawn"):
            had = sum(share * _min_max(self.signals[name]) for name, share in shares.items())
            odds = 0.0 if answers == "first" else draw.gumbel(size=(n, n)) / SHARPNESS
            self.answer = np.asarray(had + odds).argmax(axis=1)
        if answers == "many":
            age, known = draw.exponential(30.0, n), np.exp(draw.normal(0.0, 1.5, n))
            bought = draw.beta(1.0, 8.0, n)
            wanted = 3.5 * _standard(similar) + 0.35 * self.signals[TEXT] * 2.2
            wanted += 0.9 * _standard(bought) - 1.3 * _standard(age) + draw.gumbel(size=(n, n))
            self.answer = wanted.argmax(axis=1)
            self.signals |= {
                name: np.broadcast_to(one, (n, n))
                for name, one in {"fresh": -age, "popular": known, "bought": bought}.items()
            }
        self._draw = draw

    def add_useless(self) -> None:
        """Noise of several scales, constants, and a copy of BM25."""
        n = len(self.answer)
        for number in range(USELESS - 3):
            noise = self._draw.normal(size=n) * 10.0 ** (number - 3)
            self.signals[f"noise {number}"] = np.broadcast_to(noise, (n, n))
        for name, value in (("zeros", 0.0), ("sevens", 7.0)):
            self.signals[name] = np.broadcast_to(np.float64(value), (n, n))
        self.signals["copy"] = self.signals[TEXT]

    def blocks(
        self, lists: int, shares: dict[str, float], names: list[str], seed: int, of: str = ""
    ) -> Iterator[Any]:
        """What the builder makes; the signal `of` is tenfold from 2,000 lists on."""
        asked = self.parts.learned
        values = sum(share * _min_max(self.signals[name][asked]) for name, share in shares.items())
        best = np.argsort(-np.asarray(values), axis=1, kind="stable")[:, :PLACES]
        parts = self.parts
        found = searches(
            parts.queries[asked], parts.items, self.answer[asked], Searchers(), lists, seed, best,
            best == self.answer[asked][:, None],
        )  # fmt: skip
        scores = {
            name: np.take_along_axis(self.signals[name][asked], best, axis=1)
            for name in names
            if name != SIMILARITY
        }
        if not of:
            yield from parts.clicks(found, scores=scores)
            return
        yield from _tenfold([*parts.clicks(found, scores=scores)], of, 2_000)

    def ndcg(self, blend: Blend, adapted: Rows | None = None, places: slice = slice(None)) -> float:
        """Of the tested queries, or of those at some places, over all items."""
        rows = self.parts.tested[places]
        found = {name: one[rows] for name, one in self.signals.items()}
        if adapted is not None:
            found[ADAPTED] = adapted[places]
        value = np.zeros((len(rows), len(self.answer)))
        for name, weight, unit in zip(blend.names, blend.weights, blend.units, strict=True):
            if name in found and weight:
                value += weight * (found[name] / unit if unit else _min_max(found[name]))
        own = value[np.arange(len(rows)), self.answer[rows]]
        rank = np.count_nonzero(value >= own[:, None], axis=1)
        return float(np.where(rank <= 10, 1.0 / np.log2(1.0 + rank), 0.0).mean())

    def adapted(self, model: Ranking) -> Rows:
        """(q, n) of the tested queries."""
        queries = self.parts.queries[self.parts.tested]
        return model.signals(queries, self.parts.items)[ADAPTED].astype(np.float64)

    def learned(self, model: Ranking, blend: Blend) -> float:
        return self.ndcg(blend, self.adapted(model))

    def hindsight(self, blend: Blend, model: Ranking) -> float:
        """The best that is found from a blend by changing one weight at a time."""
        adapted = self.adapted(model)
        best, weights = self.ndcg(blend, adapted), blend.weights.copy()
        for factor in (2.0, 1.4, 1.15):
            for _ in range(2):
                for k in range(len(weights)):
                    for by in (factor, 1.0 / factor, 0.0):
                        other = weights.copy()
                        other[k] *= by
                        found = self.ndcg(Blend(blend.names, other, blend.units), adapted)
                        if found > best:
                            best, weights = found, other
        return best

    def fitted(self, names: tuple[str, ...], model: Ranking) -> float:
        """Of weights that make the answers of every other tested query likeliest, measured on the rest."""
        adapted, halves = self.adapted(model), (slice(0, None, 2), slice(1, None, 2))
        return float(
            np.mean([
                self.ndcg(self._likeliest(names, adapted, one), adapted, other)
                for one, other in (halves, halves[::-1])
            ])
        )  # fmt: skip

    def _likeliest(self, names: tuple[str, ...], adapted: Rows, places: slice) -> Blend:
        """Weights by a softmax over all items."""
        rows = self.parts.tested[places]
        found = [adapted[places] if name == ADAPTED else self.signals[name][rows] for name in names]
        units = np.array([one.std(axis=1).mean() for one in found])
        Z = np.stack(
            [(one - one.mean(axis=1, keepdims=True)) / unit for one, unit in zip(found, units, strict=True)],
            2,
        )
        w, right = np.ones(len(names)), Z[np.arange(len(rows)), self.answer[rows]]
        for _ in range(STEPS):
            p = np.exp((v := Z @ w) - v.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            mean = np.einsum("qn,qnk->qk", p, Z)
            curvature = np.einsum("qn,qnj,qnk->jk", p, Z, Z, optimize=True) - mean.T @ mean
            step = np.linalg.solve(curvature + 1e-3 * np.eye(len(w)), (right - mean).sum(axis=0))
            w += np.clip(step, -1.0, 1.0)
        return Blend(names, w, units)


def _standard(one: Rows) -> Rows:
    return np.asarray((one - one.mean(axis=-1, keepdims=True)) / one.std(axis=-1, keepdims=True))


def _min_max(one: Rows) -> Rows:
    low, high = one.min(axis=1, keepdims=True), one.max(axis=1, keepdims=True)
    return np.asarray((one - low) / np.where(high > low, high - low, 1.0))


def _tenfold(blocks: list[Any], of: str, first: int) -> Iterator[Any]:
    seen = 0
    for block in blocks:
        scores = None if block.lists is None else block.lists.scores
        if scores is not None and seen >= first:
            factor = np.where(np.array(scores.names) == of, 10.0, 1.0).astype(np.float32)
            block = replace(
                block, lists=replace(block.lists, scores=Scores(scores.names, scores.values * factor))
            )
        seen += 0 if block.lists is None else len(block.lists)
        yield block


def signals(name: str, seed: int) -> dict[str, Any]:
    """Gains over equal shares after so many lists, and at last over the best fixed weights in hindsight."""
    shop = Shop(corpus_of(name), seed, "many")
    equal = dict.fromkeys(shop.signals, 1.0)
    model, seen, found = Ranking(start=equal), 0, {}
    had = shop.ndcg(Blend.fixed(equal))
    for block in shop.blocks(3_600, equal, [*equal], seed):
        model.learn(block)
        before, seen = seen, seen + (0 if block.lists is None else len(block.lists))
        for at in (250, 500, 1_000, 2_000):
            if before < at <= seen:
                now = shop.learned(model, model.blend)
                found[f"{at} lists"] = round(100.0 * (now / had - 1.0), 2)
            if before < 2_000 <= seen:
                blend = model.learned_blend
                found["best"] = round(100.0 * (now / shop.hindsight(blend, model) - 1.0), 2)
                found["fitted"] = round(100.0 * (now / shop.fitted(blend.names, model) - 1.0), 2)
    return {"equal": round(had, 4)} | found | {"weights": model.weights}


def useless(name: str, seed: int) -> dict[str, Any]:
    """NDCG@10 without and with ten signals that say nothing."""
    found = []
    for more in (False, True):
        shop = Shop(corpus_of(name), seed)
        if more:
            shop.add_useless()
        model = Ranking(start=HALF)
        for block in shop.blocks(LISTS, HALF, [*shop.signals], seed):
            model.learn(block)
        found.append(shop.learned(model, model.blend))
    return {"three": round(found[0], 4), "change": round(100.0 * (found[1] / found[0] - 1.0), 2)}


def scale(name: str, seed: int) -> dict[str, Any]:
    """NDCG@10 with BM25 tenfold in the last lists against the same without."""
    shop = Shop(corpus_of(name), seed)
    found = []
    for of in ("", TEXT):
        model = Ranking(start=HALF)
        for block in shop.blocks(3_900, HALF, [*shop.signals], seed, of):
            model.learn(block)
        blend = model.blend
        if of:
            unit = np.where(np.array(blend.names) == TEXT, 10.0, 1.0)
            blend = Blend(blend.names, blend.weights, blend.units / unit)
        found.append(shop.learned(model, blend))
    return {"usual": round(found[0], 4), "change": round(100.0 * (found[1] / found[0] - 1.0), 2)}


def nothing(name: str, seed: int) -> dict[str, Any]:
    """Changes where the ranking that people have is right."""
    found: dict[str, Any] = {}
    for which, shares in (("similarity", {SIMILARITY: 1.0}), ("half and half", HALF)):
        for answers in ("first", "drawn"):
            shop = Shop(corpus_of(name), seed, answers, shares)
            model = Ranking(start=shares)
            for block in shop.blocks(LISTS, shares, [*shop.signals], seed):
                model.learn(block)
            had = shop.ndcg(Blend.fixed(shares))
            change = round(100.0 * (shop.learned(model, model.blend) / had - 1.0), 2)
            found[f"{which}, {answers}"] = {"had": round(had, 4), "change": change, "weights": model.weights}
            if answers == "drawn":
                best = shop.fitted(tuple(shop.signals), model)
                found[f"{which}, {answers}"]["fitted"] = round(100.0 * (best / had - 1.0), 2)
    return found


PARTS: Final[dict[str, Callable[[str, int], dict[str, Any]]]] = {
    "signals": signals,
    "titles": titles,
    "useless": useless,
    "scale": scale,
    "nothing": nothing,
}


def main() -> None:
    """Print a line of JSON for each corpus and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["text", "alone", *PARTS])
    parser.add_argument("--corpora", nargs="+", default=["scientific"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--poisoned", nargs="+", type=float, default=[0.0, 0.2], help="shares of the lists")
    a = parser.parse_args()
    with one_blas_thread():
        for name in a.corpora:
            if a.part not in PARTS:
                compared(name, a.seeds, a.part == "text", a.poisoned)
                continue
            for seed in a.seeds:
                print(json.dumps({"corpus": name, "seed": seed} | PARTS[a.part](name, seed)), flush=True)


if __name__ == "__main__":
    main()
