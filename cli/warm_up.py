"""`kinstream warm-up`: compile kernels into the cache."""

from __future__ import annotations

import time
from typing import Final

import click

#: Names the kernels of the query agent.
SEARCH: Final = "search"


@click.command("warm-up")
@click.argument("kinds", nargs=-1)
def warm_up(kinds: tuple[str, ...]) -> None:
    """Compile the kernels, so that no worker has to. Example: kinstream warm-up opml clicks search

    KINDS are kinds of learners and builders, and "search" for the query agent; all of them, in both number types, where
    none is named: also learners that other installed packages add. Workers compile what they need by themselves; in an
    image this saves them the time.
    """
    from kinstream.learners import registry as learners
    from kinstream.learners.single import DTYPES
    from kinstream.learners.warm_up import warm_up as compile_learner
    from kinstream.processors.registry import names as builders
    from kinstream.processors.warm_up import COMPILED
    from kinstream.processors.warm_up import warm_up as compile_builders
    from kinstream.search.lsh.warm_up import warm_up_all as compile_indexes
    from kinstream.streams.errors import SettingsError

    known = (*learners.names(), *builders(), SEARCH)
    unknown = sorted(set(kinds) - set(known))
    if unknown:
        raise click.UsageError(f"there is no {', '.join(unknown)}; there are: {', '.join(known)}")
    began = time.monotonic()
    for kind in kinds or learners.names():
        if kind not in learners.names():
            continue
        try:
            for dtype in DTYPES if learners.has(kind, "dtype") else (None,):
                compile_learner(kind, {} if dtype is None else {"dtype": dtype})
        except SettingsError as error:
            if kinds:
                raise
            click.echo(f"left out: {error}", err=True)
        except Exception as error:
            whose = learners.distribution_of(kind)
            if kinds or whose is None:
                raise
            # A fault of another distribution's learner.
            click.echo(f"left out: {kind} of {whose}: {type(error).__name__}: {error}", err=True)
    compile_builders(tuple(kind for kind in COMPILED if not kinds or kind in kinds))
    if not kinds or SEARCH in kinds:
        compile_indexes()
    click.echo(f"kernels are compiled ({time.monotonic() - began:.1f} s)")
