"""The linear adapter that libraries fit offline: a full matrix, softmax over a batch, many epochs (torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.extras import importing

Rows = NDArray[np.floating[Any]]


def batch_adapter(
    queries: Rows,
    items: Rows,
    seed: int,
    *,
    epochs: int = 30,
    batch: int = 64,
    rate: float = 1e-3,
    temperature: float = 0.05,
    negatives: int = 0,
) -> Rows:
    """The matrix W (d, d) of q' W x, fitted to pairs of a query and its item.

    From W = I by Adam; the negatives of a query are the other items of its batch. This is the loss of
    sentence-transformers' MultipleNegativesRankingLoss with its scale of 20, which adapter libraries use.

    Parameters
    ----------
    queries, items : (n, d), row by row.
    negatives : further items of each batch, drawn from all.

    Raises
    ------
    SettingsError : torch is not installed: the extra `torch` has it.
    """
    with importing("the batch adapter"):
        import torch
    Q, X = (torch.tensor(np.asarray(rows, np.float32)) for rows in (queries, items))
    W = torch.eye(Q.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([W], lr=rate)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(Q), generator=draw).split(batch):
            drawn = torch.randperm(len(X), generator=draw)[:negatives]
            scores = (Q[rows] @ W) @ torch.cat([X[rows], X[drawn]]).T / temperature
            loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(rows)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return np.asarray(W.detach().numpy())
