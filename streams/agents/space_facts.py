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
    """

    epoch: int
    step: int
    deleted: bool

    @classmethod
    def of(cls, space: Space) -> Self:
        return cls(space.epoch, space.step, space.status is Status.DELETED)

    @classmethod
    def parse(cls, label: str) -> Self:
        """The facts of a label.

        Raises
        ------
        ValueError, KeyError : `label` has not written it.
        """
        found = json.loads(label)
        return cls(found["epoch"], found["step"], found["deleted"])


def label(space: Space) -> str:
    """The facts of a space as text, and its status beside them, for readers of the manifest."""
    return json.dumps({**SpaceFacts.of(space)._asdict(), "status": space.status.value}, sort_keys=True)
