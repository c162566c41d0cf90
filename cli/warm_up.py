"""`kinstream warm-up`: compile every kernel into the cache."""

from __future__ import annotations

import time

import click


@click.command("warm-up")
@click.option("--learners-only", is_flag=True, help="Leave out the builders of clicks and relations.")
def warm_up(learners_only: bool) -> None:
    """Compile the kernels, so that no worker has to. Example: kinstream warm-up"""
    from learners.warm_up import warm_up as compile_learners
    from processors.warm_up import warm_up as compile_builders

    began = time.monotonic()
    compile_learners()
    if not learners_only:
        compile_builders()
    click.echo(f"kernels are compiled ({time.monotonic() - began:.1f} s)")
