"""`kinstream search`: the query agent."""

from __future__ import annotations

import click

from kinstream.cli.shared.serving import serve


@click.command()
@click.option(
    "--unsupervised", is_flag=True, help="Run in this process, without a supervisor that restarts it."
)
@click.pass_context
def search(ctx: click.Context, unsupervised: bool) -> None:
    """Answer nearest-neighbour queries over HTTP. Example: kinstream --config kinstream.toml search

    It serves the spaces of [search.spaces.NAME], each with the items of kinstream.events and the newest model of its
    learner. It only reads: you can run any number of query agents and stop them at any time.
    """
    from kinstream.search.web.server import Server, require_packages

    require_packages()
    serve(ctx, "search", unsupervised, Server)
