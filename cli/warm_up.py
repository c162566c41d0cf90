"""`kinstream warm-up`: compile every kernel into the cache."""

from __future__ import annotations

import time

import click


@click.command("warm-up")
def warm_up() -> None:
    """Compile the kernels, so that no worker has to. Example: kinstream warm-up"""
    from learners.warm_up import warm_up as compile_all

    began = time.monotonic()
    compile_all()
    click.echo(f"kernels are compiled ({time.monotonic() - began:.1f} s)")
