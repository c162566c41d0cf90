"""`kinstream warm-up`: compile kernels into the cache."""

from __future__ import annotations

import time
from typing import Final

import click

#: The name for the kernels of the service's own index.
INDEX: Final = "index"


@click.command("warm-up")
@click.argument("kinds", nargs=-1)
@click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Only this number type.")
@click.option("--jobs", type=click.IntRange(1), help="Processes at a time; by default one per processor.")
def warm_up(kinds: tuple[str, ...], dtype: str | None, jobs: int | None) -> None:
    """Compile the kernels, so that no worker has to. Example: kinstream warm-up opml clicks index

    KINDS are kinds of learners and builders, and "index" for the index of the service. Without KINDS, everything is
    compiled in both number types, including learners of other installed packages. Workers compile missing kernels by
    themselves; in a container image this command saves them that time.
    """
    from kinstream.cli.compiling import compile_together
    from kinstream.learners import registry as learners
    from kinstream.learners.base.one_modality import DTYPES
    from kinstream.learners.held_out.compiling import compile_held_out
    from kinstream.learners.warm_up import part
    from kinstream.learners.warm_up import warm_up as compile_learner
    from kinstream.processors.registry import names as builders
    from kinstream.processors.warm_up import COMPILED
    from kinstream.processors.warm_up import warm_up as compile_builders
    from kinstream.search.index.warm_up import warm_up_all as compile_indexes
    from kinstream.streams.errors import SettingsError

    known = (*learners.names(), *builders(), INDEX)
    unknown = sorted(set(kinds) - set(known))
    if unknown:
        raise click.UsageError(f"there is no {', '.join(unknown)}; there are: {', '.join(known)}")
    began = time.monotonic()
    types = DTYPES if dtype is None else (dtype,)
    ours = [kind for kind in kinds or learners.names() if kind in learners.names()]
    others = [kind for kind in (*COMPILED, INDEX) if not kinds or kind in kinds]
    if jobs != 1:
        wanted = [
            found for one in types for kind in ours if (found := part(kind, {"dtype": one})) is not None
        ]
        compile_together([*wanted, *((kind, None) for kind in others)], jobs)
    if ours:
        compile_held_out()
    # Load what other processes have compiled.
    for kind in ours:
        try:
            for one in types if learners.has(kind, "dtype") else (None,):
                compile_learner(kind, {} if one is None else {"dtype": one})
        except SettingsError as error:
            if kinds:
                raise
            click.echo(f"left out: {error}", err=True)
        except Exception as error:
            whose = learners.distribution_of(kind)
            if kinds or whose is None:
                raise
            # An error in a learner of another distribution.
            click.echo(f"left out: {kind} of {whose}: {type(error).__name__}: {error}", err=True)
    compile_builders(tuple(kind for kind in COMPILED if not kinds or kind in kinds))
    if not kinds or INDEX in kinds:
        compile_indexes()
    click.echo(f"kernels are compiled ({time.monotonic() - began:.1f} s)")
