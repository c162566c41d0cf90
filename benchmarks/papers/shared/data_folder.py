"""The data sets of the experiments by name, from a folder that the user fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.experiment.data import LabelledRows, of_arrays, of_source
from kinstream.producers.labelled.bundled import BUNDLED_PREFIX
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.errors import SettingsError, SourceError

#: Environment variable that names the folder of data sets if no option does.
VARIABLE: Final = "KINSTREAM_DATA"
_UCI: Final = "UCI Machine Learning Repository"


@dataclass(frozen=True, slots=True)
class Known:
    """A public data set.

    Parameters
    ----------
    what : rows, features, classes.
    where : its public original, for downloading it.
    files : alternatives, the first complete one is used; the parts of one are concatenated. By default the set's own
        name.
    bundled : scikit-learn's name for the same rows, or "".
    """

    what: str
    where: str
    files: tuple[tuple[str, ...], ...] = ()
    bundled: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing data set, and the files needed."""

    name: str
    reason: str


KNOWN: Final[Mapping[str, Known]] = {
    "balance": Known("625 x 4, 3 classes", f"{_UCI}: Balance Scale"),
    "breast": Known(
        "683 x 9, 2 classes (rows without a value left out)", f"{_UCI}: Breast Cancer Wisconsin (Original)"
    ),
    "cifar10_gray": Known(
        "60,000 gray images of 32 x 32, 10 classes",
        "CIFAR-10, turned to gray",
        (("cifar10_gray",), ("cifar10_gray_train_a", "cifar10_gray_train_b", "cifar10_gray_test")),
    ),
    "eeg": Known("14,980 x 14, 2 classes", f"{_UCI}: EEG Eye State"),
    "emnist": Known("131,600 images of 28 x 28, 47 classes", "EMNIST, the Balanced split of NIST"),
    "emnist_bymerge": Known(
        "116,323 images of 28 x 28, 47 classes of unequal size",
        "EMNIST, the test part of the ByMerge split of NIST",
        (("emnist_bymerge",), ("emnist_bymerge_test",)),
    ),
    "fashion": Known("70,000 images of 28 x 28, 10 classes", "Fashion-MNIST"),
    "glass": Known("214 x 9, 6 classes", f"{_UCI}: Glass Identification"),
    "ionosphere": Known("351 x 34, 2 classes", f"{_UCI}: Ionosphere"),
    "iris": Known("150 x 4, 3 classes", f"{_UCI}: Iris", bundled="iris"),
    "leaves100": Known(
        "1,600 x 3 modalities of 64, 100 classes", f"{_UCI}: One-hundred plant species leaves data set"
    ),
    "lsvt": Known("126 x 310, 2 classes", f"{_UCI}: LSVT Voice Rehabilitation"),
    "mfeat": Known("2,000 x 6 modalities, 10 classes", f"{_UCI}: Multiple Features"),
    "mnist": Known(
        "70,000 images of 28 x 28, 10 classes; is_test marks the last 10,000",
        "MNIST database of handwritten digits",
    ),
    "msrc_v1": Known("210 x 5 modalities, 7 classes", "MSRC-v1 of Microsoft Research Cambridge, as features"),
    "optdigits": Known("5,620 x 64, 10 classes", f"{_UCI}: Optical Recognition of Handwritten Digits"),
    "pima": Known("768 x 8, 2 classes", "Pima Indians Diabetes, once at the UCI Machine Learning Repository"),
    "segment": Known("2,310 x 19, 7 classes", f"{_UCI}: Image Segmentation (Statlog)"),
    "sensorless": Known("58,509 x 48, 11 classes", f"{_UCI}: Dataset for Sensorless Drive Diagnosis"),
    "sensorless_2200": Known(
        "2,200 x 48, 11 classes of 200", f"a part of {_UCI}: Sensorless Drive Diagnosis"
    ),
    "soybean": Known("47 x 35, 4 classes", f"{_UCI}: Soybean (Small)"),
    "spect": Known("267 x 22, 2 classes", f"{_UCI}: SPECT Heart"),
    "waveform": Known("5,000 x 21, 3 classes", f"{_UCI}: Waveform Database Generator (Version 1)"),
    "wine": Known("178 x 13, 3 classes", f"{_UCI}: Wine", bundled="wine"),
}


@dataclass(frozen=True)
class DataFolder:
    """Loads data sets by name: NAME.npz with X (n, d), or X_MODALITY (n, d_i), and y (n,); or NAME.csv as
    `kinstream produce labelled` reads it. Rows are as they are in the file, neither scaled nor shuffled.

    Parameters
    ----------
    path : the folder, or None for those sets alone that scikit-learn bundles.

    Raises
    ------
    SettingsError : it is named, and there is no such folder.
    """

    path: Path | None
    known: Mapping[str, Known] = field(default_factory=lambda: KNOWN)

    def __post_init__(self) -> None:
        if self.path is not None and not self.path.is_dir():
            raise SettingsError(f"{self.path}: this folder of data sets does not exist")

    def load(self, name: str) -> LabelledRows | Missing:
        """A data set, or what is missing.

        Raises
        ------
        SourceError, SettingsError : a file exists but cannot be used.
        KeyError : no experiment has such a set.
        """
        known = self.known[name]
        found = self.arrays(name)
        if found is not None:
            tables = {key.removeprefix("X_"): X for key, X in found.items() if key.startswith("X_")}
            return of_arrays(name, tables or found["X"], found["y"])
        for files in known.files or ((name,),):
            path = self._file(files[0], ".csv") if len(files) == 1 else None
            if path is not None:
                return of_source(name, open_source(str(path)))
        if known.bundled:
            return of_source(name, open_source(BUNDLED_PREFIX + known.bundled))
        return self._missing(name)

    def arrays(self, name: str) -> dict[str, NDArray[Any]] | None:
        """The arrays of its .npz files, parts put together; None if they are missing.

        Raises
        ------
        SourceError : a file is not an archive of arrays, or has neither features nor labels.
        """
        for files in self.known[name].files or ((name,),):
            paths = [self._file(file, ".npz") for file in files]
            if all(path is not None for path in paths):
                parts = [_read(path) for path in paths if path is not None]
                return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return None

    def _file(self, name: str, ending: str) -> Path | None:
        if self.path is None:
            return None
        path = self.path / f"{name}{ending}"
        return path if path.is_file() else None

    def _missing(self, name: str) -> Missing:
        known = self.known[name]
        files = " or ".join(" + ".join(f"{part}.npz" for part in one) for one in known.files or ((name,),))
        place = (
            f"in {self.path}"
            if self.path is not None
            else f"available: name a folder by --data or {VARIABLE}"
        )
        return Missing(name, f"{files} is not {place}. It is {known.what}; public original: {known.where}")


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{path}: not an archive of arrays that can be read: {error}") from error
    except Exception as error:  # a damaged zip file can raise any error
        raise SourceError(f"{path}: a damaged archive: {error}") from error
    if "y" not in found or not any(key == "X" or key.startswith("X_") for key in found):
        raise SourceError(
            f"{path}: expected y, and X or one X_NAME for each modality; it has {', '.join(found)}"
        )
    return found
