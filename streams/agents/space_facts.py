"""What a manifest says of a space, so that models are announced and spaces listed without reading their files."""

from __future__ import annotations

import json
from typing import NamedTuple, Self

from kinstream.streams.agents.space import Space, Status


class SpaceFacts(NamedTuple):
    """It stands as the label of the space's data file.

    Parameters
    ----------
    epoch : below 0 where only a refused record has named the space.
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
        ValueError, KeyError : it is not one that `label` has written.
        """
        found = json.loads(label)
        return cls(found["epoch"], found["step"], found["deleted"])


def label(space: Space) -> str:
    """The facts of a space as text, and its status beside them, for a person who reads the manifest."""
    return json.dumps({**SpaceFacts.of(space)._asdict(), "status": space.status.value}, sort_keys=True)
