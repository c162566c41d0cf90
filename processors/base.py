"""What every constraint builder offers."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

from numpy.typing import NDArray

from streams.records import ConstraintBlock, SampleBlock

#: A builder's state as a checkpoint stores it: names to arrays and scalars, nothing else.
State = dict[str, NDArray[Any] | int | float | str | bool]

#: No constraint block is larger when it is encoded.
MAX_BLOCK_BYTES: Final = 512 * 1024


@runtime_checkable
class Builder(Protocol):
    """A deterministic state machine that serves one space.

    Same constructor arguments and same events give bit-identical state and the same blocks.
    """

    @property
    def algorithm(self) -> str:
        """Name and version, such as "one-pass/1"; the version changes whenever the same input gives other output."""

    def process(self, block: SampleBlock, offset: int) -> list[ConstraintBlock]:
        """Take in the rows of a block in order and return the constraints that they make, in order.

        Parameters
        ----------
        block : is not changed and not kept.
        offset : of the event in its log; the identity of a block that stands in no load.

        Returns
        -------
        No block, or as many as it takes to keep each small; their epoch is left to the caller.

        Raises
        ------
        streams.errors.BadRecord
            The block does not fit the space; the state is untouched.
        """

    def state(self) -> State:
        """A copy of everything that later results depend on."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned on a builder with the same constructor arguments."""
