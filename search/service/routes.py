"""The routes of the query agent."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from kinstream.search.service.index_metrics import SearchMetrics
from kinstream.search.backends.index import SearchService
from kinstream.search.service.app import Application
from kinstream.search.service.answers import Answering
from kinstream.search.service.replies import (
    SearchReply,
    SearchRequest,
    SimilarItemsRequest,
    SimilarRequest,
    SpacesReply,
    TransformReply,
    TransformRequest,
)
from kinstream.streams.records.checks import MAX_SPACE_LENGTH

Space = Annotated[
    str | None,
    Query(max_length=MAX_SPACE_LENGTH, description="May be left out if only one space is served."),
]
Neighbours = Annotated[int, Query(ge=1, description="Number of neighbours; the limit is search.max_k.")]


def make_app(service: SearchService) -> FastAPI:
    """The routes of a query agent. The caller starts and stops the service."""
    metrics = SearchMetrics(service)
    answering = Answering(service, metrics)
    made = Application(
        service,
        metrics,
        "Kinstream query agent",
        "Nearest neighbours under metrics that are being learned. Every answer names the one model and the one state "
        "of the catalogue that it comes from.",
    )
    desk = made.desk

    @made.post("/search", SearchReply, SearchRequest, "The nearest items of vectors")
    async def search(request: Request) -> Response:
        return await desk.answer(request, answering.search)

    @made.post(
        "/similar",
        SearchReply,
        SimilarItemsRequest,
        "The nearest items of several items, each without the item itself",
    )
    async def similar_items(request: Request) -> Response:
        return await desk.answer(request, answering.similar_items)

    @made.get(
        "/similar/{item:path}", SearchReply, "The nearest items of an item, without the item itself", 404, 422
    )
    async def similar(item: str, space: Space = None, k: Neighbours = 10) -> Response:
        return await desk.answer(None, lambda _: answering.similar([item], space, k))

    @made.post("/similar/{item:path}", SearchReply, SimilarRequest, "The same, with a body")
    async def similar_posted(item: str, request: Request) -> Response:
        return await desk.answer(request, lambda body: answering.similar_posted(item, body))

    @made.post(
        "/transform", TransformReply, TransformRequest, "The images of vectors under the serving model"
    )
    async def transform(request: Request) -> Response:
        return await desk.answer(request, answering.transform)

    @made.get("/spaces", SpacesReply, "The spaces, and the serving model of each")
    async def spaces() -> Response:
        return await desk.answer(None, lambda _: answering.spaces())

    return made.app
