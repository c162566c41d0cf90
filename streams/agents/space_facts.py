"""The label of a space in a manifest, so that models are announced and spaces listed without their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Self

from kinstream.streams.agents.space import Space, Status
from kinstream.streams.checkpoints.manifest import DataFile, Manifest
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.withheld import Withheld


class SpaceFacts(NamedTuple):
    """Facts of a space, written as the label of its data file.

    Parameters
    ----------
    epoch : below 0 if only a refused record has named the space.
    step : constraints accepted by the model in this epoch.
    worse : whether it is worse on held-out events than the best un-learned metric.
    worse_by, of : by how much, and of how many; None where that is not known.
    """

    epoch: int
    step: int
    deleted: bool
    worse: bool = False
    worse_by: float | None = None
    of: int | None = None

    @classmethod
    def of_space(cls, space: Space) -> Self:
        """The facts of a space now."""
        judge = space.judge
        worse = judge is not None and judge.worse
        figure = judge.figure if worse and judge is not None else None
        by, of = (None, None) if figure is None else figure
        return cls(space.epoch, space.step, space.status is Status.DELETED, worse, by, of)

    @classmethod
    def parse(cls, label: str) -> Self:
        """The facts of a label.

        Raises
        ------
        ValueError, KeyError : it was not written by `label`.
        """
        found = json.loads(label)
        known = {name: found[name] for name in ("worse", "worse_by", "of") if name in found}
        return cls(found["epoch"], found["step"], found["deleted"], **known)

    def withheld(self, generation: int) -> Withheld:
        """The note that this model is withheld."""
        return Withheld(generation, self.epoch, self.step, self.worse_by, self.of)


def label(space: Space) -> str:
    """The facts of a space as text, and its status beside them, for readers of the manifest."""
    facts = SpaceFacts.of_space(space)._asdict()
    plain = {name: value for name, value in facts.items() if name not in ("worse", "worse_by", "of") or value}
    return json.dumps({**plain, "status": space.status.value}, sort_keys=True)


def last_announced(
    before: Manifest | None, space: str, epoch: int, withholds: Callable[[str], bool], url: str
) -> DataFile | None:
    """The data file of a space that was announced last in an epoch, from the manifest before; None if none was.

    Its label says where and when it was announced, so that later manifests can name it.

    Parameters
    ----------
    withholds : whether a space with that label was not announced.
    url : of the files of that manifest.
    """
    if before is None or space not in before.spaces:
        return None
    file: DataFile | None
    if space in before.announced:
        file = before.announced[space]
    elif withholds(before.spaces[space].label):
        file = None
    else:
        found = before.spaces[space]
        place = {
            "generation": before.generation,
            "partition": before.partition,
            "offset": before.offset,
            "written_ms": before.written_ms,
            "location": f"{url}/{found.path}",
        }
        file = replace(found, label=json.dumps({**json.loads(found.label), **place}, sort_keys=True))
    if file is None:
        return None
    facts = SpaceFacts.parse(file.label)
    return None if facts.epoch != epoch or facts.deleted else file


def announced_version(
    manifest: Manifest, space: str, *, learner: str, algorithm: str, url: str
) -> ModelVersion | None:
    """The model of a space that services use: that of the checkpoint, or the last one announced if it is withheld.

    Parameters
    ----------
    url : of the partition's files.

    Returns
    -------
    None if it is withheld, and none was announced in its epoch.
    """
    file = manifest.announced.get(space, manifest.spaces[space])
    if file is None:
        return None
    facts, place = SpaceFacts.parse(file.label), json.loads(file.label)
    found = model_version(
        manifest, space, facts, learner=learner, algorithm=algorithm, location=f"{url}/{file.path}"
    )
    if space not in manifest.announced:
        return found
    return replace(
        found,
        sha256=file.sha256,
        generation=place["generation"],
        partition=place["partition"],
        offset=place["offset"],
        time_ms=place["written_ms"],
        location=place["location"],
    )


def model_version(
    manifest: Manifest, space: str, facts: SpaceFacts, *, learner: str, algorithm: str, location: str
) -> ModelVersion:
    """The model of a space as a checkpoint holds it.

    Parameters
    ----------
    facts : of the label of that space's data file.
    location : URL of that file.
    """
    return ModelVersion(
        space=space,
        learner=learner,
        algorithm=algorithm,
        generation=manifest.generation,
        epoch=facts.epoch,
        step=facts.step,
        topic=manifest.topic,
        partition=manifest.partition,
        offset=manifest.offset,
        location=location,
        sha256=manifest.spaces[space].sha256,
        time_ms=manifest.written_ms,
        deleted=facts.deleted,
    )
