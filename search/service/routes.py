"""The routes of the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from kinstream.search.service.answers import Answering
from kinstream.search.service.app import Application
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.service.replies import FeedbackReply, MapReply, SearchReply, SpacesReply
from kinstream.search.service.requests import (
    MAX_K,
    FeedbackRequest,
    MapRequest,
    SearchRequest,
    SimilarItemsRequest,
    SimilarRequest,
)
from kinstream.search.service.service import Service
from kinstream.streams.records.checks import MAX_SPACE_LENGTH

Space = Annotated[
    str | None,
    Query(max_length=MAX_SPACE_LENGTH, description="May be left out if only one space is served."),
]
Neighbours = Annotated[int, Query(ge=1, description=f"Number of neighbours; at most {MAX_K}.")]


def make_app(service: Service) -> FastAPI:
    """The routes of a service. The caller starts and stops the service."""
    metrics = ServiceMetrics(service)
    answering = Answering(service, metrics)
    made = Application(service, metrics)
    desk = made.desk

    @made.post("/search", SearchReply, SearchRequest, "The nearest items of vectors")
    async def search(request: Request) -> Response:
        return await desk.answer(request, answering.search)

    @made.post(
        "/similar",
        SearchReply,
        SimilarItemsRequest,
        "The nearest items of several items of our own index, each without the item itself",
    )
    async def similar_items(request: Request) -> Response:
        return await desk.answer(request, answering.similar_items)

    @made.get(
        "/similar/{item:path}", SearchReply, "The nearest items of an item, without the item itself", 404, 422
    )
    async def similar(item: str, space: Space = None, k: Neighbours = 10) -> Response:
        return await desk.answer(None, lambda _: answering.similar([item], SimilarRequest(space=space, k=k)))

    @made.post("/similar/{item:path}", SearchReply, SimilarRequest, "The same, with a body")
    async def similar_posted(item: str, request: Request) -> Response:
        return await desk.answer(request, lambda body: answering.similar_posted(item, body))

    @made.post("/map", MapReply, MapRequest, "The images of vectors under the serving model")
    async def map_vectors(request: Request) -> Response:
        return await desk.answer(request, answering.map)

    if service.writer is not None:

        @made.post("/feedback", FeedbackReply, FeedbackRequest, "What was done with lists that were shown")
        async def feedback(request: Request) -> Response:
            return await desk.answer(request, answering.feedback)

    @made.get("/spaces", SpacesReply, "The spaces, and the serving model of each")
    async def spaces() -> Response:
        return await desk.answer(None, lambda _: answering.spaces())

    return made.app
