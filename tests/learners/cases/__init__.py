"""What the checks of `testing/learners.py` run over: a module for each learner, with a function `cases()`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from kinstream.testing.learners import Case


@cache
def all_cases() -> tuple[Case, ...]:
    """The cases of all modules here, by module name; their blocks are made once in a process."""
    modules = sorted(module.name for module in iter_modules(__path__))
    return tuple(case for name in modules for case in import_module(f"{__name__}.{name}").cases())
