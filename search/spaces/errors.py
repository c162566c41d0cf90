"""Why a query cannot be answered."""

from __future__ import annotations

from kinstream.search.index.items import Modalities


class NotReady(Exception):
    """The catalogue is not read up to the end that it had at the start, or no index is built yet."""


class UnknownItem(Exception):
    """No item of that name is in the catalogue; `row` is its place in the request."""

    def __init__(self, row: int) -> None:
        super().__init__(f"item {row}")
        self.row = row


class WrongDimension(Exception):
    """The vectors of a query differ in dimension from the catalogue, whose `modalities` are given."""

    def __init__(self, modalities: Modalities) -> None:
        super().__init__(", ".join(f"{name}: {size}" for name, size in modalities))
        self.modalities = modalities
