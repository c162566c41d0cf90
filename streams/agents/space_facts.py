"""The label of a space in a manifest, so that models are announced and spaces listed without their files."""

from __future__ import annotations

import json
from typing import NamedTuple, Self

from kinstream.streams.agents.space import Space, Status
from kinstream.streams.checkpoints.manifest import Manifest
from kinstream.streams.records.values import ModelVersion


class SpaceFacts(NamedTuple):
    """Facts of a space, written as the label of its data file.

    Parameters
    ----------
    epoch : below 0 if only a refused record has named the space.
    step : constraints accepted by the model in this epoch.
    worse : whether it is worse on held-out events than the best un-learned metric.
    """

    epoch: int
    step: int
    deleted: bool
    worse: bool = False

    @classmethod
    def of(cls, space: Space) -> Self:
        worse = space.judge is not None and space.judge.worse
        return cls(space.epoch, space.step, space.status is Status.DELETED, worse)

    @classmethod
    def parse(cls, label: str) -> Self:
        """The facts of a label.

        Raises
        ------
        ValueError, KeyError : it was not written by `label`.
        """
        found = json.loads(label)
        return cls(found["epoch"], found["step"], found["deleted"], found.get("worse", False))


def label(space: Space) -> str:
    """The facts of a space as text, and its status beside them, for readers of the manifest."""
    facts = SpaceFacts.of(space)._asdict()
    if not facts["worse"]:
        del facts["worse"]
    return json.dumps({**facts, "status": space.status.value}, sort_keys=True)


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
