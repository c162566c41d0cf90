"""One version of a query map. It never changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.learners.models.query_map import QueryMap
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.remembered import Recalled, Remembered
from kinstream.search.models.model import UNLEARNED, Name
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.checks import MAX_DIMENSION

#: Largest exported file.
MAX_FILE_BYTES: Final = 1 << 31
#: The arrays of the map in an exported file: of low rank, without a rank, of another bilinear learner.
_FORMS: Final = (("U", "V"), ("W",), ("similarity",))


@dataclass(frozen=True, slots=True, eq=False)
class QueryModel:
    """A query map and its name. `map` is thread-safe.

    Before the first model, and in a space that was deleted or reset, nothing is learned: queries stay as they are.

    Parameters
    ----------
    learner : whose model it is.
    name : (generation, epoch, step).
    digest : of the model's state, in hexadecimal; empty if nothing is learned.
    query_map : the map; None if nothing is learned.
    blend : how a learner of the kind `ranking` weighs signals; None for others.
    cosine : whether its similarities are cosines, and not inner products.
    known : how it weighs signals for queries that it remembers something of.
    remembered : what was chosen for queries; None for nothing.
    """

    learner: str
    name: Name = UNLEARNED
    digest: str = ""
    query_map: QueryMap | None = None
    blend: Blend | None = None
    cosine: bool = False
    known: Blend | None = None
    remembered: Remembered | None = None

    @property
    def adapted(self) -> bool:
        """Whether this is a learned map."""
        return self.query_map is not None

    @property
    def dimension(self) -> int | None:
        """Number of features that `map` takes; None if it takes any."""
        return None if self.query_map is None else self.query_map.dimension

    def takes(self, Q: NDArray[Any]) -> bool:
        """Whether `map` takes queries (n, d) of this dimension."""
        return self.dimension in (None, Q.shape[1])

    def map(self, Q: ArrayLike) -> NDArray[np.float32]:
        """What a store of raw items is asked with: by the inner product with it, or the cosine, items rank as learned.

        Parameters
        ----------
        Q : raw queries (n, d), or one (d,).

        Returns
        -------
        float32 of the same shape.

        Raises
        ------
        ValueError
            Q has another shape.
        """
        found = np.asarray(Q)
        rows = found[None] if found.ndim == 1 else found
        if rows.ndim != 2:
            raise ValueError(f"expected queries of shape (n, d) or (d,), got {found.shape}")
        mapped = np.array(rows, np.float32) if self.query_map is None else self.query_map(rows)
        return mapped.reshape(found.shape)

    def asking(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """A query (d,), raw or mapped, whose inner products with items are a signal of the blend.

        Of length 1 where the signals are cosines, so that items of length 1 get their cosine by the inner product too.
        """
        length = float(np.linalg.norm(row)) if self.blend is not None and self.cosine else 0.0
        return np.asarray(row / length, np.float32) if 0.0 < length < np.inf else row

    def recall(self, row: NDArray[np.float32]) -> Recalled | None:
        """What is remembered for a raw query (d,); None if that is not enough to go by `known`."""
        return None if self.remembered is None or self.known is None else self.remembered.recall(row)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The model of a file that `kinstream models export` has written as npz.

        Raises
        ------
        SettingsError : the file cannot be read, or holds no query map.
        """
        try:
            if Path(path).stat().st_size > MAX_FILE_BYTES:
                raise SettingsError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            metadata = json.loads(str(arrays.pop("metadata")))
            name = Name(*(int(metadata[part]) for part in Name._fields))
            digest, cosine = str(metadata["state_sha256"]), metadata.get("product") == "cosine"
            return cls(
                str(metadata["learner"]),
                name,
                digest,
                _map_in(arrays, metadata),
                _blend_in(arrays),
                cosine,
                _blend_in(arrays, "known_"),
                Remembered.of(arrays),
            )
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror or error}") from None
        except (BadZipFile, KeyError, TypeError, ValueError, EOFError) as error:
            raise SettingsError(
                f"{path}: not a query map that `kinstream models export -o FILE.npz` has written: {error}"
            ) from None


def _map_in(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> QueryMap:
    """The map of an exported file. Raises ValueError if there is none."""
    if "query_map" not in metadata:
        raise ValueError(f"{metadata['algorithm']} has no query map")
    if "item_map" in metadata:
        raise ValueError("it is for a store of mapped items; export it without --rank")
    (form,) = [names for names in _FORMS if set(names) <= set(arrays)]
    found = [arrays[name] for name in form]
    shapes = {one.shape for one in found}
    (shape,) = shapes
    square = len(form) == 2 or shape[0] == shape[1]
    if len(shape) != 2 or not square or not 1 <= shape[0] <= MAX_DIMENSION:
        raise ValueError(f"its arrays are of shape {shape}")
    if any(one.dtype.kind != "f" or not np.isfinite(one).all() for one in found):
        raise ValueError("its arrays are not all of finite numbers")
    return QueryMap(dict(zip(("U", "V") if len(form) == 2 else ("W",), found, strict=True)))


def _blend_in(arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Blend | None:
    """The weights of an exported file; None if it has none. Raises ValueError if they are not weights."""
    if f"{prefix}signals" not in arrays:
        return None
    names, weights, scales = (arrays[prefix + name] for name in ("signals", "weights", "scales"))
    return Blend(tuple(names.tolist()), weights, scales)
