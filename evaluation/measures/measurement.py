"""Measures a learned metric on rows or constraints that it has not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from kinstream.evaluation.experiment import views
from kinstream.evaluation.experiment.data import Labels, Tables
from kinstream.evaluation.experiment.plan import Measuring
from kinstream.evaluation.measures.clicks import click_lists
from kinstream.evaluation.measures.held_out_rows import begun
from kinstream.evaluation.measures.importance import shares
from kinstream.evaluation.measures.quality import (
    Retrieval,
    Verification,
    click_retrieval,
    evaluation_pairs,
    graded,
    knn,
    retrieval,
    verification,
)
from kinstream.evaluation.measures.ranking import NDCG_ITEMS
from kinstream.learners.base.learner import Learner
from kinstream.streams.records.values import ConstraintBlock, Kind


@dataclass
class Measured:
    """Measures by name, and the curves behind some of them.

    Parameters
    ----------
    columns : of `transform`; None if the learner had seen nothing.
    seconds_transform, transformed : the time of one `transform`, and its rows. No result may depend on it.
    shares : of the features, see `kinstream.evaluation.measures.importance`; None where there are none.
    roc : {"fpr": [...], "tpr": [...]}; recall : {"k": [...], "value": [...]}.
    """

    values: dict[str, float] = field(default_factory=dict)
    columns: int | None = None
    seconds_transform: float = 0.0
    transformed: int = 0
    shares: list[float] | None = None
    roc: dict[str, list[float]] | None = None
    recall: dict[str, list[float]] | None = None


def of_rows(
    learner: Learner,
    many: bool,
    train: Tables,
    y: Labels,
    test: Tables,
    v: Labels,
    measuring: Measuring,
    seed: int,
    *,
    what: Sequence[str] | None = None,
) -> Measured:
    """Measures on labelled rows.

    Parameters
    ----------
    many : whether the learner takes a table for each modality.
    train, test : (n, d_i) by modality, y, v : their labels.
    seed : of the pairs for verification.
    what : measures to use instead of those of `measuring`.
    """
    wanted = measuring.what if what is None else what
    x, u = views.features(train, many), views.features(test, many)
    model: Any = learner
    found = Measured()
    # Before its first constraint a learner of one modality has its initial metric; the others have none yet.
    if not begun(learner) and (many or hasattr(model, "classify")):
        return found
    if what is None:
        _describe(found, model, u)
        own = None if many else shares(model, x)
        found.shares = None if own is None else [round(float(share), 6) for share in own]
    near: Any = None
    asked: Any = None
    if "retrieval" in wanted or "classification" in wanted:
        near, asked = model.transform(x), model.transform(u)
    if "classification" in wanted:
        if measuring.own_vote and hasattr(model, "classify"):
            vote = graded(model.classify(x, y, u, min(measuring.neighbours, len(y))), v)
        else:
            vote = knn(near, y, asked, v, min(measuring.neighbours, len(y)))
        if vote.error is not None and vote.macro_f1 is not None:
            found.values |= {"error": vote.error, "macro_f1": vote.macro_f1}
    if "verification" in wanted:
        left, right, same = evaluation_pairs(v, measuring.pairs, seed)
        rows = [{name: table[side] for name, table in test.items()} for side in (left, right)]
        a, b = (views.features(part, many) for part in rows)
        judged = verification(np.asarray(model.distance(a, b), np.float64), same)
        _add(found, judged)
    if "retrieval" in wanted:
        itself = measuring.gallery == "test"
        gallery, labels = (asked, v) if itself else (near, y)
        ranks = [k for k in measuring.ranks if k <= len(labels) - itself]
        ranked = retrieval(asked, gallery, v, labels, ranks, itself)
        if ranked.mean_average_precision is not None:
            found.values["map"] = ranked.mean_average_precision
        _add_ranks(found, ranked)
        if ranked.recall is not None and ranked.precision is not None:
            for k, recall, precision in zip(ranks, ranked.recall, ranked.precision, strict=True):
                found.values |= {f"recall_at_{k}": recall, f"precision_at_{k}": precision}
            found.recall = {"k": [float(k) for k in ranks], "value": list(ranked.recall)}
    return found


def of_constraints(
    learner: Learner, many: bool, blocks: Sequence[ConstraintBlock], ranks: Sequence[int]
) -> Measured:
    """Share of held-out triplets that are ranked wrong (ties too), and ROC and AUC over held-out pairs.

    Of triplets from clicks also the rank of the clicked items among all items of these blocks, with Recall@K for each K
    of `ranks`.
    """
    model: Any = learner
    wrong = total = 0
    distances: list[np.ndarray[Any, Any]] = []
    signs: list[np.ndarray[Any, Any]] = []
    for block in blocks:
        sides = [
            views.features({table.name: table.vectors[column] for table in block.tables}, many)
            for column in block.index.T
        ]
        if block.kind is Kind.PAIR:
            distances.append(np.asarray(model.distance(sides[0], sides[1]), np.float64))
            signs.append(block.signs > 0)
        else:
            near, far = (np.asarray(model.distance(sides[0], other)) for other in sides[1:])
            wrong += int(np.count_nonzero(near >= far))
            total += len(block)
    found = Measured()
    if blocks and (begun(learner) or not many):
        first = {table.name: table.vectors for table in blocks[0].tables}
        _describe(found, model, views.features(first, many))
        lists = click_lists(blocks)
        if lists is not None:
            asked, gallery = (
                model.transform(views.features(side, many)) for side in (lists.queries, lists.items)
            )
            kept = [k for k in ranks if k <= len(gallery)]
            ranked = click_retrieval(asked, gallery, lists.clicked, kept)
            _add_ranks(found, ranked)
            if ranked.recall is not None:
                for k, recall in zip(kept, ranked.recall, strict=True):
                    found.values[f"recall_at_{k}"] = recall
    if total:
        found.values["held_out_mistakes"] = wrong / total
    if distances:
        judged = verification(np.concatenate(distances), np.concatenate(signs))
        _add(found, judged)
    return found


def _describe(found: Measured, model: Any, rows: Any) -> None:
    """Columns of `transform`, and its time."""
    mapped = model.transform(rows)
    began = perf_counter()
    model.transform(rows)
    found.seconds_transform, found.transformed = perf_counter() - began, len(mapped)
    found.columns = int(np.asarray(mapped).shape[1])


def _add_ranks(found: Measured, ranked: Retrieval) -> None:
    if ranked.ndcg is not None and ranked.reciprocal_rank is not None:
        found.values |= {f"ndcg_at_{NDCG_ITEMS}": ranked.ndcg, "mrr": ranked.reciprocal_rank}


def _add(found: Measured, judged: Verification) -> None:
    if judged.auc is not None:
        found.values["auc"] = judged.auc
        found.roc = {"fpr": list(judged.fpr), "tpr": list(judged.tpr)}
