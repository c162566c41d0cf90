"""Replacements for functions of a test runner, so that the checks need none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=Exception)


def refused(error: type[E], call: Callable[..., Any], *arguments: Any) -> E:
    """The error of that type that the call with these arguments raises.

    Raises
    ------
    AssertionError
        The call returned.
    """
    try:
        call(*arguments)
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was expected, and nothing was raised")


def runs_assertions() -> None:
    """Raise RuntimeError if Python runs with -O: the checks are assertions, and would all pass."""
    if not __debug__:
        raise RuntimeError("the checks are assert statements, which -O disables: run Python without it")
