"""A note beside the announcement of a model: the learner has a newer one, and withholds it.

While a learner withholds its newest model, it announces again the last one that it announced before, with this note in
a header of the record. So the value is what it was, and readers that know no such note read it as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

from kinstream.streams.errors import BadRecord, Reason

#: Of the header.
NAME: Final = "withheld"
_LONGEST: Final = 1_000


class Withheld(NamedTuple):
    """The newest model of a space and learner, which is not to be used. Compared by its name.

    Parameters
    ----------
    generation, epoch, step : its name.
    worse_by, of : on held-out events, by how much it is worse than the best un-learned metric (a difference of rates
        of mistakes), and of how many; None in a note of a version that did not say.
    """

    generation: int
    epoch: int
    step: int
    worse_by: float | None = None
    of: int | None = None

    def header(self) -> tuple[str, bytes]:
        """The header of a record."""
        return NAME, json.dumps(self._asdict()).encode()

    def __str__(self) -> str:
        name = f"{self.generation}.{self.epoch}.{self.step}"
        if self.worse_by is None:
            return f"{name}: worse than the best un-learned metric on held-out events"
        return (
            f"{name}: {self.worse_by:.3f} worse than the best un-learned metric on {self.of} held-out events"
        )

    def named(self) -> dict[str, Any]:
        """What an answer says of it, as JSON."""
        return self._asdict()

    @classmethod
    def of_headers(cls, headers: Iterable[tuple[str, bytes | None]]) -> Self | None:
        """The note of a record; None without one.

        Raises
        ------
        BadRecord : it is no such note.
        """
        value = next((value for name, value in headers if name == NAME), None)
        if value is None:
            return None
        try:
            found = json.loads(value if len(value) <= _LONGEST else b"null")
            by, of = found["worse_by"], found["of"]
            numbers = [found[name] for name in ("generation", "epoch", "step")]
            whole = [*numbers, *([] if of is None else [of])]
            if any(type(n) is not int or n < 0 for n in whole) or type(by) not in (float, int, type(None)):
                raise ValueError("a number that is none")
            generation, epoch, step = numbers
            return cls(generation, epoch, step, None if by is None else float(by), of)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadRecord(Reason.BAD_SHAPE, f"a note that a model is withheld: {error}") from error
