"""What a mapping makes of records or of rows, printed and counted, where nothing is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from kinstream.cli.shared.output import tell

if TYPE_CHECKING:
    from kinstream.streams.errors import BadRecord


#: Refusals that are printed; all are counted.
_REFUSALS: Final = 100


class Trial:
    """Prints events and refusals as they come, and a sum at the end.

    Parameters
    ----------
    noun : what is mapped: records or rows.
    shown : of so many of them the events are printed.
    """

    def __init__(self, noun: str, *, shown: int, as_json: bool) -> None:
        self._noun = noun
        self._shown = shown
        self._as_json = as_json
        self._events: list[dict[str, Any]] = []
        self._refusals: list[dict[str, str]] = []
        self._refused: Counter[str] = Counter()
        self._read = self._left_out = self._without_query = 0

    def take(self, place: str, events: Iterable[Any] | None) -> None:
        """Take what a record or a row has become; None where it is left out."""
        self._read += 1
        self._left_out += events is None
        self.show(place, events or ())

    def refuse(self, place: str, error: BadRecord) -> None:
        """Take a refusal."""
        from kinstream.streams.records.payload import escaped

        self._read += 1
        self._refused[error.reason.value] += 1
        if self._refused.total() > _REFUSALS:
            return
        if self._as_json:
            self._refusals.append({"place": place, "reason": error.reason.value, "detail": str(error)})
        else:
            click.echo(escaped(f"{place}: refused, {error}"))

    def show(self, place: str, events: Iterable[Any]) -> None:
        """Print events, and count them."""
        from kinstream.streams.records.description import plain
        from kinstream.streams.records.values import Click

        for event in events:
            empty = isinstance(event, Click) and event.query_item is None and not event.query_vector
            self._without_query += empty
            if self._read - self._refused.total() > self._shown:
                continue
            if self._as_json:
                self._events.append({"place": place, "event": plain(event)})
            else:
                _print(place, event)

    def end(self, place: str) -> bool:
        """Print the sum; whether none was refused.

        Parameters
        ----------
        place : where the records were.
        """
        refused = self._refused.total()
        fit = self._read - self._left_out - refused
        reasons = "".join(f"; {number} {reason}" for reason, number in sorted(self._refused.items()))
        lines = [] if self._read else [f"no {self._noun} in {place}"]
        lines.append(
            f"{self._read} {self._noun}: {fit} fit, {self._left_out} left out, {refused} refused{reasons}"
        )
        if self._without_query:
            lines.append(
                "lists without query_vector and query_item, of which an adapter learns nothing: "
                f"{self._without_query}"
            )
        fields: dict[str, Any] = {
            self._noun: self._read,
            "fit": fit,
            "left_out": self._left_out,
            "without_query": self._without_query,
            "refused": self._refusals,
            "events": self._events,
        }
        tell(fields, lines, as_json=self._as_json)
        return not refused


def _print(place: str, event: Any) -> None:
    from kinstream.streams.records.description import record_lines
    from kinstream.streams.records.payload import escaped

    kind, *lines = record_lines(event)
    click.echo(escaped(f"{place}: {kind}"))
    for line in lines:
        name, _, value = line.strip().partition(": ")
        # A load position comes with sending; the rest that is not there is not shown.
        if name.endswith("_ms") and value == "-1":
            click.echo(f"  {name}: that of sending")
        elif name != "load" and value not in ("None", "[]"):
            click.echo(escaped(line))
