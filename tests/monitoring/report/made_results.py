"""Made-up results of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kinstream.evaluation.runner.summary import summarise

Line = dict[str, Any]

#: Mean errors by data set and metric; a metric whose name ends in ° learns nothing.
Errors = Mapping[str, Mapping[str, Sequence[float | None]]]

WINE = {
    "euclidean°": [0.20, 0.22, 0.21, 0.23, 0.20],
    "cosine°": [0.25, 0.26, 0.24, 0.27, 0.25],
    "opml": [0.10, 0.11, 0.12, 0.12, 0.10],
    "oasis": [0.30, 0.33, 0.31, 0.32, 0.31],
    "oahu": [0.20, 0.21, 0.22, 0.23, 0.19],
}
IRIS = {
    "euclidean°": [0.05, 0.06, 0.05, 0.04, 0.05],
    "cosine°": [0.04, 0.04, 0.03, 0.04, 0.05],
    "opml": [0.05, 0.05, 0.02, 0.03, 0.05],
    "oasis": [0.20, 0.22, 0.21, 0.20, 0.25],
    "oahu": [0.04, 0.05, 0.02, 0.04, 0.05],
}


def made(errors: Errors, **over: Any) -> Line:
    """A result with these errors by split, and with every other part that a result can have."""
    names = list(dict.fromkeys(name for metrics in errors.values() for name in metrics))
    cells = [
        cell(data, name, split, error)
        for data, metrics in errors.items()
        for split in range(max(map(len, metrics.values()), default=0))
        for name, values in metrics.items()
        if split < len(values)
        for error in [values[split]]
    ]
    result: Line = {
        "format": 1,
        "versions": {"kinstream": "0.1.0", "numpy": "2.4.6"},
        "plan": {
            "name": "An experiment",
            "seed": 7,
            "choice": {"by": "error"},
            "contenders": [{"name": "hidden"}],
        },
        "metrics": [
            {
                "name": name.removesuffix("°"),
                "role": "unlearned" if name.endswith("°") else "learner",
                "kind": name.removesuffix("°"),
                "builder": None if name.endswith("°") else "one-pass",
                "grid": [{"gamma": 0.1}, {"gamma": 0.2}] if name == "opml" else [{}],
            }
            for name in names
        ],
        "data": [{"name": data, "rows": 178, "features": 13, "classes": 3} for data in errors],
        "cells": cells,
    } | over
    # As it comes from a file.
    loaded: Line = json.loads(json.dumps(result | summarise(result)))
    return loaded


def cell(data: str, name: str, split: int, error: float | None) -> Line:
    """One cell. Whoever errs makes mistakes; metrics that learn nothing use no constraint."""
    learns, wrong = not name.endswith("°"), 0.5 if error is None else error
    at = list(range(10, 110, 10))
    mistakes = [round(wrong * n) for n in at]
    utilised = [n // 2 if learns else 0 for n in at]
    measures = {"mistake_rate": mistakes[-1] / at[-1]}
    if learns:
        measures["utilisation"] = utilised[-1] / at[-1]
    if error is not None:
        measures |= {"error": error, "auc": 1.0 - error, "recall_at_1": 1.0 - error, "recall_at_5": 1.0}
    parts = 9 if name == "oahu" else 3
    rising = [
        [(1.0 + i * n / 100) / sum(1.0 + j * n / 100 for j in range(parts)) for i in range(parts)] for n in at
    ]
    return {
        "data": data,
        "split": split,
        "seed": 7 + split,
        "metric": name.removesuffix("°"),
        "train_rows": 89,
        "test_rows": 89,
        "settings": {"scaler": "zscore"} | ({"gamma": 0.1 if split else 0.2} if name == "opml" else {}),
        "tried": [],
        "counts": {
            "seen": at[-1],
            "scored": at[-1],
            "mistakes": mistakes[-1],
            "utilised": utilised[-1],
            "clipped": 0,
            "rejected": 2 if name == "oasis" else 0,
            "degenerate": 0,
            "ignored": 0,
            "loss": 0.1 + 0.2,
        },
        "curve": {"constraints": at, "scored": at, "mistakes": mistakes, "utilised": utilised},
        "weights": {"constraints": at, "names": [f"layer-{i}" for i in range(parts)], "values": rising}
        if name in ("oahu", "omdml")
        else None,
        "measures": measures,
        "roc": {"fpr": [0.0, wrong / 2, 1.0], "tpr": [0.0, 1.0 - wrong / 2, 1.0]}
        if error is not None
        else None,
        "recall": {"k": [1, 5], "value": [1.0 - wrong, 1.0]} if error is not None else None,
    }
