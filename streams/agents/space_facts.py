"""The label of a space in a manifest, so that models are announced and spaces listed without their files."""

from __future__ import annotations

import json
from typing import NamedTuple, Self

from kinstream.streams.agents.space import Space, Status


class SpaceFacts(NamedTuple):
    """Facts of a space, written as the label of its data file.

    Parameters
    ----------
    epoch : below 0 if only a refused record has named the space.
    step : constraints accepted by the model in this epoch.
    worse : on held-out events than the best un-learned metric.
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
        ValueError, KeyError : `label` has not written it.
        """
        found = json.loads(label)
        return cls(found["epoch"], found["step"], found["deleted"], found.get("worse", False))


def label(space: Space) -> str:
    """The facts of a space as text, and its status beside them, for readers of the manifest."""
    facts = SpaceFacts.of(space)._asdict()
    if not facts["worse"]:
        del facts["worse"]
    return json.dumps({**facts, "status": space.status.value}, sort_keys=True)
