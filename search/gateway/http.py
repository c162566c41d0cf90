"""The routes of the gateway."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from kinstream.search.gateway.answers import Answering
from kinstream.search.service.gateway_metrics import GatewayMetrics
from kinstream.search.gateway.requests import MapReply, MapRequest, SearchReply, SearchRequest, SpacesReply
from kinstream.search.service.gateway_service import GatewayService
from kinstream.search.service.app import Application


def make_app(service: GatewayService) -> FastAPI:
    """The routes of a gateway. The caller starts and stops the service."""
    metrics = GatewayMetrics(service)
    answering = Answering(service, metrics)
    made = Application(
        service,
        metrics,
        "Kinstream gateway",
        "Queries by vector to your own store, mapped by a model that is being learned. Every answer names the "
        "model and the state of the store that it comes from, and the candidate of drafted lists.",
    )
    desk = made.desk

    @made.post("/search", SearchReply, SearchRequest, "The most similar items to vectors")
    async def search(request: Request) -> Response:
        return await desk.answer(request, answering.search)

    @made.post("/map", MapReply, MapRequest, "Mapped queries, without asking the store")
    async def map_queries(request: Request) -> Response:
        return await desk.answer(request, answering.map)

    @made.get("/spaces", SpacesReply, "The spaces, and the serving model of each")
    async def spaces() -> Response:
        return await desk.answer(None, lambda _: answering.spaces())

    return made.app
