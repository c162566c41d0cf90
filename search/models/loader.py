"""A model from its announcement: the data file with the announced digest, and the learner of that state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kinstream.learners.base.learner import Learner
from kinstream.learners.models.export import learner_of
from kinstream.search.models.model import Model
from kinstream.search.models.staleness import Failure
from kinstream.streams.checkpoints.files import Damaged, Missing
from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.operations.models import Refused, birth_behind, data_of
from kinstream.streams.records.checks import MAX_DIMENSION
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings

#: Hyper-parameters that name where a model was learned; they do not change the model.
_ELSEWHERE = {"device": "cpu", "path": "compiled"}


class Unloadable(Exception):
    """A model that is not available now; `failure` is the reason as a word, the text as a sentence."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


def unloadable(error: Exception) -> Unloadable:
    """An error of the store or of the settings, as the reason why a model is not available."""
    kinds = (
        (Missing, Failure.MISSING),
        (Damaged, Failure.DAMAGED),
        ((Refused, SettingsError), Failure.REFUSED),
    )
    failure = next((one for kind, one in kinds if isinstance(error, kind)), Failure.UNREACHABLE)
    return Unloadable(failure, hide(str(error)))


class Loader:
    """Loads models, with the hyper-parameters of their generation.

    Parameters
    ----------
    settings : the checkpoint store. Their `[learners.NAME]` only counts if a generation has no birth record.
    check : raises for a learner that cannot be used, and makes one compute its lazy values; `settle` by default.
    """

    def __init__(self, settings: Settings, check: Callable[[Learner], None] | None = None) -> None:
        self._settings = settings
        self._check = check or settle
        #: Kind and arguments by learner and generation: a birth record never changes.
        self._known: dict[tuple[str, int], tuple[str, dict[str, Any]]] = {}

    def load(self, version: ModelVersion, present: Model) -> Model:
        """The announced model, ready for many threads.

        Parameters
        ----------
        present : the serving model; its learner is reused if the file is the same.

        Raises
        ------
        Unloadable : the file is missing, damaged, unreachable or does not fit; or any other error.
        """
        try:
            return self._load(version, present)
        except Unloadable:
            raise
        # Records and files come from elsewhere: none of them may end the thread that follows all spaces.
        except Exception as error:
            text = f"{version.location!r}: loading it failed: {error!r}"
            raise Unloadable(Failure.FAULT, hide(text)) from error

    def _load(self, version: ModelVersion, present: Model) -> Model:
        if version.deleted:
            return Model(version)
        old = present.version
        if (
            old is not None
            and not old.deleted
            and (old.sha256, old.generation) == (version.sha256, version.generation)
        ):
            return Model(version, present.learner)
        try:
            kind, arguments = self.hyper_parameters(version)
            data = data_of(version, self._settings)
        except (SettingsError, CheckpointError, OSError) as error:
            raise unloadable(error) from error
        try:
            learner = learner_of(from_bytes(data), kind, arguments)
            if learner is not None:
                self._check(learner)
        # A complete file may still not be a state of this learner, which then raises an error of its own.
        except (SettingsError, CheckpointError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            text = f"{version.location}: cannot be used as a state of {version.learner} ({kind}): {error!r}"
            raise Unloadable(Failure.REFUSED, text) from error
        return Model(version, learner)

    def hyper_parameters(self, version: ModelVersion) -> tuple[str, dict[str, Any]]:
        """Kind and arguments of the learner behind a model.

        Raises
        ------
        SettingsError : neither a birth record nor the settings have it.
        CheckpointError : the store fails, or the birth record is damaged.
        """
        key = (version.learner, version.generation)
        if key not in self._known:
            birth = birth_behind(version, self._settings)
            section = self._settings.learners.get(version.learner)
            if birth is not None:
                kind, arguments = str(birth.settings["kind"]), dict(birth.settings["arguments"])
            elif section is not None:
                # Not kept: a store that comes back may have the record.
                return section.kind, anywhere(section.arguments())
            else:
                raise SettingsError(
                    f"learner {version.learner!r} has no birth record under {self._settings.checkpoints.shown}, and "
                    f"the settings have no [learners.{version.learner}]: its hyper-parameters are unknown"
                )
            self._known[key] = kind, anywhere(arguments)
        return self._known[key]


def rebuilt(version: ModelVersion, settings: Settings) -> Learner:
    """The learner behind a model, with the hyper-parameters of its generation.

    Raises
    ------
    SettingsError : neither a birth record nor the settings have the learner.
    CheckpointError : the model's file is missing or damaged, or nothing was learned yet.
    """
    from kinstream.learners.models.export import learner_from

    kind, arguments = Loader(settings).hyper_parameters(version)
    return learner_from(data_of(version, settings), kind, arguments)


def anywhere(arguments: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that let a model learned with torch, perhaps on a GPU, be used without them.

    Only OAHU has these, alone or as the base of a fusion.
    """
    found = {key: anywhere(value) if isinstance(value, dict) else value for key, value in arguments.items()}
    return found | {key: usual for key, usual in _ELSEWHERE.items() if isinstance(found.get(key), str)}


def settle(learner: Learner) -> None:
    """Make a learner compute its lazy values now, so that threads that share it only read it.

    Raises
    ------
    ValueError : the image of a vector is not a vector, or is not finite.
    Exception : any other error of the learner for a state that gives no metric.
    """
    modalities: tuple[tuple[str, int], ...] = getattr(learner, "modalities", ())
    dimension: int | None = getattr(learner, "dimension", None)
    if modalities:
        sizes = [size for _, size in modalities]
    elif dimension is not None:
        sizes = [dimension]
    else:
        return
    if min(sizes) < 1 or sum(sizes) > MAX_DIMENSION:
        raise ValueError(f"a map of {sizes} features")
    one: Any = np.ones((1, sizes[0]))
    if modalities:
        one = {name: np.ones((1, size)) for name, size in modalities}
    image = np.asarray(learner.transform(one))
    if image.ndim != 2 or len(image) != 1 or image.dtype.kind != "f" or not np.isfinite(image).all():
        raise ValueError(
            f"1 of each feature becomes {image.dtype} of shape {image.shape}, not all of it finite"
        )
