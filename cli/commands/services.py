"""`kinstream search` and `kinstream gateway`: the services over HTTP."""

from __future__ import annotations

import click

from kinstream.cli.shared.serving import serve
from kinstream.streams.extras import GATEWAY, SEARCH, require

_UNSUPERVISED = click.option(
    "--unsupervised", is_flag=True, help="Run in this process, without a supervisor that restarts it."
)


@click.command()
@_UNSUPERVISED
@click.pass_context
def search(ctx: click.Context, unsupervised: bool) -> None:
    """Answer nearest-neighbour queries over HTTP. Example: kinstream --config kinstream.toml search

    It serves the spaces of [search.spaces.NAME], each with the items of kinstream.events and the newest model of its
    learner. It only reads: you can run any number of query agents and stop them at any time.
    """
    require(*SEARCH, who="search", extra="search")
    serve(ctx, "search", unsupervised, "kinstream.search.web.server")


@click.command()
@_UNSUPERVISED
@click.pass_context
def gateway(ctx: click.Context, unsupervised: bool) -> None:
    """Map queries and ask your own vector store, over HTTP. Example: kinstream --config kinstream.toml gateway

    It serves the spaces of [gateway.spaces.NAME], each with a store and the newest model of its learner, or one of a
    file. It only reads: you can run any number of gateways and stop them at any time.
    """
    require(*GATEWAY, who="gateway", extra="gateway")
    serve(ctx, "gateway", unsupervised, "kinstream.search.gateway.server")
