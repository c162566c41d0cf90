"""OAHU's network: its first weights, and the embedding of vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.kernels.ensembles.oahu import DEAD, row
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]

#: Vectors that pass the layers together; their hidden layers fit in the processor's cache.
CHUNK: Final = 1024


@dataclass(slots=True, eq=False)
class OAHUNetwork:
    """A chain of L hidden layers h_l = relu(h_{l-1} W_l + b_l), h_0 = x, and L + 1 embeddings u_l = h_l Theta_l.

    Vectors are rows. The matrices have the kernel's layout; `state` returns them separately.

    Parameters
    ----------
    first, rest, biases : the layers, laid out as described in `kinstream.learners.kernels.ensembles.oahu`.
    embedding : dimension m of the embeddings.
    """

    first: Rows
    rest: Rows
    biases: Rows
    embedding: int

    @classmethod
    def random(
        cls,
        d: int,
        layers: int,
        hidden: int,
        embedding: int,
        biased: bool,
        isometric: bool,
        seed: int,
        dtype: str,
    ) -> Self:
        """First weights; they depend on the seed only.

        Parameters
        ----------
        d, layers, hidden, embedding : features of the input, L, S and m.
        biased : whether hidden layers have biases. They begin at 0.
        isometric : begin with the distances of the input in every embedding, as far as m dimensions allow: rows of W_1
            are an orthogonal projection and its negative, relu(z) - relu(-z) = z, and later layers are the identity.
            Otherwise all are uniform, W within sqrt(6 / inputs) and Theta within 1 / sqrt(inputs); the paper does not
            name its scheme.
        """
        made = cls.zeros(d, layers, hidden, embedding, biased, dtype)
        draw = np.random.default_rng(seed)
        if isometric:
            with one_blas_thread():
                made._isometric(draw)
            return made
        for theta, W in made.parts():
            theta[:] = draw.uniform(-1.0, 1.0, theta.shape) / np.sqrt(len(theta))
            if W is not None:
                W[:] = draw.uniform(-1.0, 1.0, W.shape) * np.sqrt(6.0 / len(W))
        return made

    @classmethod
    def zeros(cls, d: int, layers: int, hidden: int, embedding: int, biased: bool, dtype: str) -> Self:
        """All weights 0."""
        columns = row(embedding + hidden)
        return cls(
            np.zeros((d, columns), dtype),
            np.zeros((layers, hidden, columns), dtype),
            np.zeros((layers if biased else 0, hidden), dtype),
            embedding,
        )

    @property
    def layers(self) -> int:
        """L."""
        return len(self.rest)

    def approach(self, other: Self, share: float) -> None:
        """Move the weights by that share towards those of another network of the same shape."""
        for own, there in (
            (self.first, other.first),
            (self.rest, other.rest),
            (self.biases, other.biases),
        ):
            own += own.dtype.type(share) * (there - own)

    def state(self) -> State:
        """Theta0 .. ThetaL, W1 .. WL and b1 .. bL, copies."""
        found: State = {}
        for k, (theta, W) in enumerate(self.parts()):
            found[f"Theta{k}"] = theta.copy()
            if W is not None:
                found[f"W{k + 1}"] = W.copy()
        return found | {f"b{k + 1}": bias.copy() for k, bias in enumerate(self.biases)}

    def restore(self, state: State) -> None:
        """Load the result of `state`; shapes must be those of this network.

        Raises
        ------
        ValueError
            They are not, or the type differs.
        """
        wanted = self.state()
        given = {name: np.asarray(state[name]) for name in wanted if name in state}
        for name, array in wanted.items():
            shape, dtype = np.asarray(array).shape, self.first.dtype
            if name not in given or given[name].shape != shape or given[name].dtype != dtype:
                there = f"{given[name].shape} of {given[name].dtype}" if name in given else "none"
                raise ValueError(f"{name} should be {shape} of {dtype}, the state holds {there}")
        for k, (theta, W) in enumerate(self.parts()):
            theta[:] = given[f"Theta{k}"]
            if W is not None:
                W[:] = given[f"W{k + 1}"]
        for k, bias in enumerate(self.biases):
            bias[:] = given[f"b{k + 1}"]

    def embed(self, X: Rows) -> list[Rows]:
        """f_0 .. f_L, each (n, m) of unit rows, of inputs X (n, d); rows of a dead model are 0.

        Computed in float64 for every type: the effect of which rows share a product is then below the last digit of a
        float32.
        """
        X = np.asarray(X, self.first.dtype)
        parts = [
            (theta.astype(np.float64), None if W is None else W.astype(np.float64))
            for theta, W in self.parts()
        ]
        biases = self.biases.astype(np.float64)
        found = [np.empty((len(X), self.embedding), X.dtype) for _ in range(self.layers + 1)]
        with one_blas_thread(), np.errstate(all="ignore"):
            for start in range(0, len(X), CHUNK):
                h = X[start : start + CHUNK].astype(np.float64)
                for k, (theta, W) in enumerate(parts):
                    u = h @ theta
                    length = np.linalg.norm(u, axis=1, keepdims=True)
                    dead = length < DEAD
                    found[k][start : start + CHUNK] = np.where(dead, 0.0, u / np.where(dead, 1.0, length))
                    if W is not None:
                        z = h @ W
                        h = np.maximum(z + biases[k] if len(biases) else z, 0.0)
        return found

    def parts(self) -> list[tuple[Rows, Rows | None]]:
        """Views of Theta_l and W_{l+1} by layer; the last one has no W."""
        m, S = self.embedding, self.rest.shape[1]
        matrices = [self.first, *self.rest]
        return [(M[:, :m], M[:, m : m + S] if k < self.layers else None) for k, M in enumerate(matrices)]

    def _isometric(self, draw: np.random.Generator) -> None:
        d, m, S = len(self.first), self.embedding, self.rest.shape[1]
        half = S // 2
        Q, R = _orthogonal(draw, d, half), _orthogonal(draw, d, m)
        P = Q.T @ R if d <= half else _orthogonal(draw, half, m)
        for k, (theta, W) in enumerate(self.parts()):
            if k == 0:
                theta[:] = np.eye(d) if d == m else _orthogonal(draw, d, m)
            else:
                theta[: 2 * half] = np.concatenate([P, -P])
            if W is not None:
                if k == 0:
                    W[:, : 2 * half] = np.concatenate([Q, -Q], axis=1)
                else:
                    W[:] = np.eye(S)


def _orthogonal(draw: np.random.Generator, n: int, k: int) -> NDArray[np.float64]:
    """A random (n, k) matrix with orthonormal columns, or rows where there are fewer of those."""
    found, _ = np.linalg.qr(draw.normal(size=(max(n, k), min(n, k))))
    return np.asarray(found if n >= k else found.T)
