"""The result of one check of `kinstream check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kinstream.streams.errors import KinstreamError


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    about : what was checked, such as `topics` or `learner-opml`.
    good : whether nothing has to be done.
    text : what was found.
    mend : the command or the change that mends it; empty if it is good or if `text` names it.
    """

    about: str
    good: bool
    text: str
    mend: str = ""

    def line(self) -> str:
        """For people; further lines of the text are indented."""
        whole = f"{self.about}: {self.text}" + (f" -> {self.mend}" if self.mend else "")
        return ("ok    " if self.good else "FAIL  ") + whole.replace("\n", "\n      ")

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def refusable(about: str, check: Callable[[], str]) -> Finding:
    """The text of a check, or the refusal that it raises."""
    try:
        return Finding(about, True, check())
    except KinstreamError as error:
        return Finding(about, False, str(error))
