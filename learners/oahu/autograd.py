"""OAHU in plain torch with autograd: the reference for tests of the compiled loop, and the way to use a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.ensembles.oahu import DEAD
from kinstream.learners.oahu.mini_batches import TripletResults
from kinstream.learners.oahu.network import OAHUNetwork
from kinstream.learners.oahu.step_rule import Rule
from kinstream.streams import extras
from kinstream.streams.errors import PackageMissing

if TYPE_CHECKING:
    import torch

Vector = NDArray[np.float64]

_threads = RLock()


def require(device: str) -> None:
    """Check that torch can work on a device; it is imported only to check for a GPU.

    Raises
    ------
    SettingsError
        It cannot; the error names what is missing.
    """
    extras.require("torch", who="OAHU through torch")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise PackageMissing(
                'path = "cuda" needs a GPU, and torch sees none here; path = "torch" needs none'
            )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the body with torch on one processor thread, one body at a time."""
    import torch

    with _threads:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class TorchMachine:
    """A network's gradients by autograd; a `kinstream.learners.oahu.mini_batches.Machine`.

    Layers are computed in the network's type; embeddings on the sphere and losses in float64. On the processor no bit
    depends on the number of threads.

    Parameters
    ----------
    network, sums : of the weights and of their gradients; copied, and changed by `close`.
    device : "cpu" or "cuda", for which `require` raises nothing.
    """

    def __init__(self, network: OAHUNetwork, sums: OAHUNetwork, device: str = "cpu") -> None:
        import torch

        self._network, self._sums, self._device = network, sums, device
        self._weights = {
            name: torch.tensor(array, device=device, requires_grad=True)
            for name, array in network.state().items()
        }
        self._totals = {name: torch.tensor(array, device=device) for name, array in sums.state().items()}

    def add(
        self, rule: Rule, alpha: Vector, X: NDArray[np.floating[Any]], index: NDArray[np.int32]
    ) -> TripletResults:
        """Add the gradients of triplets (n, 3) of inputs X to the sums."""
        import torch

        with one_thread(), torch.enable_grad():
            # Forward by sample, not all in one product, so that equal vectors have equal embeddings, bit by bit.
            x, positive, negative = (
                self._embed(torch.tensor(X[index[:, s]], device=self._device)) for s in range(3)
            )
            near, pulls = _distance(x, positive)
            far, pushes = _distance(x, negative)
            Dp, Dn = near.detach(), far.detach()
            c1 = rule.tau * torch.expm1(Dp) / np.expm1(2.0)
            c2 = (2.0 - rule.tau) + rule.tau * torch.expm1(-Dn) / np.expm1(-2.0)
            losses = 0.5 * (torch.relu((near - c1) / (2.0 - c1)) + torch.relu(1.0 - far / c2))
            weight = 2.0 * torch.sigmoid((Dp - Dn) / rule.temperature)
            if rule.by_alpha:
                weight = weight * torch.tensor(alpha, device=self._device)[:, None]
            else:
                weight = weight / len(alpha)
            found = TripletResults(
                losses.detach().cpu().numpy().T,
                (Dp - Dn).cpu().numpy().T,
                (pulls | pushes).any(0).cpu().numpy(),
                torch.isfinite(losses).all(0).cpu().numpy(),
            )
            if found.finite.all():
                gradients = torch.autograd.grad((weight * losses).sum(), list(self._weights.values()))
                for name, gradient in zip(self._weights, gradients, strict=True):
                    self._totals[name] += gradient
        if not found.finite.all():
            # NaN would spoil the sums, even with a weight of 0.
            self.add(rule, alpha, X, index[found.finite])
        return found

    def step(self, factor: float) -> bool:
        """Add factor times the sums to the weights, and empty them; False, and no change, if that is not finite."""
        import torch

        with one_thread(), torch.no_grad():
            stepped = {name: value + factor * self._totals[name] for name, value in self._weights.items()}
            for total in self._totals.values():
                total.zero_()
            most = torch.finfo(stepped["Theta0"].dtype).max / 4.0
            if not all(bool((value.abs() < most).all()) for value in stepped.values()):
                return False
            for name, value in stepped.items():
                self._weights[name].copy_(value)
        return True

    def embed(self, X: NDArray[np.floating[Any]]) -> list[NDArray[np.floating[Any]]]:
        import torch

        with one_thread(), torch.no_grad():
            return list(self._embed(torch.tensor(X, device=self._device)).cpu().numpy())

    def close(self) -> None:
        """Write weights and sums back."""
        for arrays, tensors in ((self._network, self._weights), (self._sums, self._totals)):
            arrays.restore({name: value.detach().cpu().numpy() for name, value in tensors.items()})

    def _embed(self, x: torch.Tensor) -> torch.Tensor:
        """Unit vectors f_l (L + 1, n, m) of inputs (n, d); zeros where the model is dead."""
        import torch

        h, found = x, []
        for k in range(self._network.layers + 1):
            found.append((h @ self._weights[f"Theta{k}"]).double())
            if k < self._network.layers:
                z = h @ self._weights[f"W{k + 1}"]
                bias = self._weights.get(f"b{k + 1}")
                h = torch.relu(z if bias is None else z + bias)
        u = torch.stack(found)
        size = torch.linalg.vector_norm(u, dim=2, keepdim=True)
        dead = size < DEAD
        f: torch.Tensor = u.masked_fill(dead, 0.0) / size.masked_fill(dead, 1.0)
        return f.masked_fill(torch.isinf(size), torch.nan)


def _distance(f: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """|f - g| (L + 1, n), and where it has a slope: not where points are equal, opposite, or one of a dead model."""
    import torch

    square = ((f - g) ** 2).sum(2)
    value = square.detach().sqrt()
    slope = (value >= DEAD) & (value <= 2.0 - DEAD) & f.any(2) & g.any(2)
    return torch.where(slope, torch.where(slope, square, 1.0).sqrt(), value), slope
