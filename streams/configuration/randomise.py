"""`[randomise.SPACE]`: lists of one model with places swapped by a coin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from kinstream.streams.configuration.gate import GateSettings
from kinstream.streams.configuration.section import Section


class RandomiseSettings(Section):
    """`[randomise.SPACE]`: which share of the queries gets a list with places swapped by a coin."""

    kind: Literal["fairpairs", "swaps"]
    """`"fairpairs"`: neighbours are swapped; `"swaps"`: the first place and another"""
    share: float = Field(default=0.1, gt=0.0, le=1.0)
    """share of the queries; with the `share` of `[gate.SPACE]` at most 1"""
    depth: int = Field(default=10, ge=2, le=255)
    """lowest place that `"swaps"` takes, counted from 1; 2 to 255"""


def check_shares(randomise: Mapping[str, RandomiseSettings], gate: Mapping[str, GateSettings]) -> None:
    """Refuse shares of drafted and of randomised lists that are more than all queries.

    Raises
    ------
    ValueError : they are, of a space.
    """
    for space, section in randomise.items():
        drafted = gate[space].share if space in gate else 0.0
        if drafted + section.share > 1.0:
            raise ValueError(
                f"randomise.{space}.share: {section.share:g} of the queries, and [gate.{space}] drafts lists of "
                f"{drafted:g}: together at most 1"
            )
