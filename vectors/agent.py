"""The agent `vectors`: events in, versions of catalogues out. It decodes, calls the core of the space, encodes.

It follows items by the rules of builders: their machine checks control records, loads, declarations and rows, and
passes control records on. So a catalogue holds the same items as a builder of the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, cast

import numpy as np

from kinstream.processors.agent import BuilderMachine
from kinstream.processors.base.builder import Builder, Origin
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import CODEC_VERSION, encode
from kinstream.streams.records.gate import GateOrder
from kinstream.streams.records.message import Message
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Declaration, ItemBlock, Loaded, Table
from kinstream.streams.records.vectors import ItemMap
from kinstream.streams.settings import Settings
from kinstream.vectors.core import SpaceVectors

NAME: Final = "vectors"


def vectors_spec(settings: Settings) -> AgentSpec:
    """The agent of the spaces of `[vectors.SPACE]`.

    Raises
    ------
    SettingsError : there is none.
    """
    if not settings.vectors:
        raise SettingsError("the settings have no [vectors.SPACE], so there is nothing to embed")
    spaces = sorted(settings.vectors)

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        return VectorMachine(place, spaces, settings.spaces.max_per_partition, load_space)

    return AgentSpec(
        application=NAME,
        name=NAME,
        prefix=settings.topics.prefix,
        input_role="events",
        output_role="vectors",
        shaping={
            "algorithm": SpaceVectors.algorithm,
            "spaces": spaces,
            "max_spaces": settings.spaces.max_per_partition,
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
        warm_up=_warm_up,
    )


def _warm_up() -> None:
    core = SpaceVectors("")
    core.process(ItemBlock("", ("a", "b"), (Table("x", np.eye(2, dtype=np.float32)),), 0, ("b",)), Origin(0))


class VectorMachine(BuilderMachine):
    """One partition of `events` under the agent. Records of other spaces are left out unread.

    Parameters
    ----------
    spaces : names of those that are followed; each is created by its first item or order.
    """

    def __init__(
        self,
        place: Place,
        spaces: Collection[str],
        max_spaces: int,
        load_space: Callable[[str], State] | None = None,
    ) -> None:
        def make(space: str, declaration: Declaration | None) -> Builder:
            return SpaceVectors(space)

        super().__init__(place, make, auto_create=True, max_spaces=max_spaces, load_space=load_space)
        self._followed = frozenset(spaces)

    def _apply(self, message: Message, origin: Origin, *, ordinary: bool) -> None:
        if self.space_name(message) in self._followed:
            super()._apply(message, origin, ordinary=ordinary)
        else:
            self.counts["not_followed"] += 1

    def _follow(self, name: str, record: Loaded, origin: Origin, known: int) -> None:
        super()._follow(name, record, origin, known)
        self._send(name)

    def _order(self, name: str, record: GateOrder | ItemMap, message: Message) -> None:
        if not isinstance(record, ItemMap):
            super()._order(name, record, message)
            return
        space = self.find(name)
        self._check_open(name, space)
        if space is not None and record.model.epoch < space.epoch:
            raise BadRecord(
                Reason.BAD_SHAPE, f"a map of epoch {record.model.epoch}, and the space is in {space.epoch}"
            )
        core = SpaceVectors(name) if space is None or space.core is None else cast(SpaceVectors, space.core)
        before = core.counts()
        core.publish(record, message.offset)
        opened = self.open(name)
        if space is None:
            opened.begin(0, None)
        opened.core = cast(Builder, core)
        self._count_fates(core.counts(), before)
        self._send(name)
        self.counts["applied"] += 1

    def _send(self, name: str) -> None:
        space = self.open(name)
        for made in cast(SpaceVectors, space.core).take():
            self.emit(name, space, encode(replace(made, epoch=space.epoch)))
