"""A prior of query maps: the mean of those that other spaces have learned, with which a map begins."""

from __future__ import annotations

from glob import glob
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import SettingsError

Matrix = NDArray[np.float64]
#: Arrays of exported query maps.
_FULL, _LOW = {"W"}, {"U", "V"}


def prior_parts(pattern: str, d: int, *, low: bool) -> list[Matrix]:
    """The mean of the maps of d features in exported files, less the identity.

    Parameters
    ----------
    pattern : path of a file that `kinstream models export` wrote as .npz, or a pattern such as `maps/*.npz`. The files
        count alike, in the order of their names.
    low : whether two matrices U, V (d, r) with U V' are wanted, and not one of (d, d).

    Returns
    -------
    list : empty if no map has d features.

    Raises
    ------
    SettingsError : there is no file, or one holds no query map of finite numbers.
    """
    maps = [one for one in map(_read, _paths(pattern)) if len(one[0]) == d]
    if not maps:
        return []
    if low:
        return [np.hstack([one[0] for one in maps]) / len(maps), np.hstack([one[1] for one in maps])]
    return [np.mean([left @ right.T for left, right in maps], axis=0)]


def files_digest(pattern: str) -> str:
    """SHA-256 of the bytes of all files of a pattern, in hexadecimal.

    Raises
    ------
    SettingsError : there is no file, or one cannot be read.
    """
    found = sha256()
    for path in _paths(pattern):
        try:
            found.update(sha256(Path(path).read_bytes()).digest())
        except OSError as error:
            raise SettingsError(f"prior: {path} cannot be read: {error}") from None
    return found.hexdigest()


def _paths(pattern: str) -> list[str]:
    paths = sorted(glob(pattern))
    if not paths:
        raise SettingsError(f"prior: there is no file {pattern}")
    return paths


def _read(path: str) -> tuple[Matrix, Matrix]:
    """U and V of the map I + U V' in a file; of a full matrix W, W - I and I."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name], np.float64) for name in _FULL | _LOW if name in file}
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise SettingsError(f"prior: {path} cannot be read: {error}") from None
    if not all(one.ndim == 2 and np.isfinite(one).all() for one in found.values()):
        raise SettingsError(f"prior: {path} has an array that is not a matrix of finite numbers")
    if set(found) == _FULL and found["W"].shape[0] == found["W"].shape[1]:
        eye = np.eye(len(found["W"]))
        return found["W"] - eye, eye
    if set(found) == _LOW and found["U"].shape == found["V"].shape:
        return found["U"], found["V"]
    raise SettingsError(f"prior: {path} holds no query map, which has an array W, or U and V")
