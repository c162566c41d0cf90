"""The query agent over HTTP.

The event loop only receives requests and sends answers, so that probes are answered at any time; reading JSON,
searching and writing JSON run in a pool of threads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kinstream.search.agent.metrics import SearchMetrics
from kinstream.search.agent.service import SearchService, threads_of
from kinstream.search.web.answers import Answering
from kinstream.search.web.connections import Connections
from kinstream.search.web.refusals import Refused, Why
from kinstream.search.web.requests import (
    ErrorReply,
    SearchReply,
    SearchRequest,
    SimilarItemsRequest,
    SimilarRequest,
    SpacesReply,
    TransformReply,
    TransformRequest,
)
from kinstream.streams.records.checks import MAX_SPACE_LENGTH

log = logging.getLogger("kinstream.search")

_JSON: Final = "application/json"
_RETRY_SECONDS: Final = 1
_FAULT: Final = "see the log of the server"
#: Routes answered under any number of requests.
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_SAFE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_REASONS: Final = {
    400: "The body is not JSON.",
    404: "The space, item or path does not exist.",
    405: "The path does not support this method.",
    408: "The body did not arrive in time.",
    413: "The body is larger than search.max_body_bytes.",
    415: "The body is of another media type than application/json.",
    422: "The request does not fit the schema, the space or the limits; `place` names the part.",
    500: "An internal error; the log of the server has details.",
    503: "Not ready, or too many requests at once; Retry-After gives the time to retry.",
    504: "The answer took longer than search.request_seconds.",
}

Space = Annotated[
    str | None,
    Query(max_length=MAX_SPACE_LENGTH, description="May be left out if only one space is served."),
]
Neighbours = Annotated[int, Query(ge=1, description="Number of neighbours; the limit is search.max_k.")]
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Response]])


class Desk:
    """Receives requests within the limits, and processes them in a pool of threads."""

    def __init__(self, service: SearchService, metrics: SearchMetrics) -> None:
        self._limits = service.limits
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(threads_of(self._limits), "kinstream-search")
        self._busy = 0
        #: Bytes of request bodies in memory.
        self._held = 0

    def close(self) -> None:
        """Accept no more work, without waiting for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: Request | None, job: Callable[[bytes], bytes]) -> Response:
        """Process a request, with its body if there is one.

        Raises
        ------
        Refused : the limit of requests is reached, the body is too large or too slow, or the answer is too slow.
        """
        began = time.monotonic()
        self._check_places()
        # A slow body takes no place of complete requests.
        body = b"" if request is None else await self._body(request)
        try:
            self._check_places()
            future = asyncio.get_running_loop().run_in_executor(self._pool, job, body)
        except BaseException:
            self._held -= len(body)
            raise
        self._count(+1)
        future.add_done_callback(lambda _: self._release(len(body)))
        # The place is freed when the work is done, even if no client waits for it any more.
        future.add_done_callback(self._done)
        left = self._limits.request_seconds - (time.monotonic() - began)
        try:
            content = await asyncio.wait_for(asyncio.shield(future), max(left, 0.001))
        except TimeoutError:
            detail = f"no answer within {self._limits.request_seconds:g} s (search.request_seconds)"
            raise Refused(504, Why.TIMEOUT, detail, retry_seconds=_RETRY_SECONDS) from None
        except Refused:
            raise
        except Exception:
            # Logged here: the framework would also close the connection.
            log.exception("a request could not be answered")
            raise Refused(500, Why.FAULT, _FAULT) from None
        return Response(content, media_type=_JSON, headers=_SAFE)

    def _done(self, future: asyncio.Future[bytes]) -> None:
        self._count(-1)
        if not future.cancelled():
            future.exception()  # already logged, or no client waits for it

    def _check_places(self) -> None:
        if self._busy >= self._limits.max_concurrent:
            raise self._too_busy(
                f"{self._busy} requests are being processed; the limit is search.max_concurrent"
            )

    def _too_busy(self, detail: str) -> Refused:
        return Refused(503, Why.BUSY, detail, retry_seconds=_RETRY_SECONDS)

    def _hold(self, size: int) -> None:
        """Reserve memory for a part of a body."""
        most = self._limits.max_concurrent * self._limits.max_body_bytes
        if self._held + size > most:
            raise self._too_busy(f"request bodies of {self._held} bytes are held; the limit is {most}")
        self._held += size

    def _release(self, size: int) -> None:
        self._held -= size

    def _count(self, step: int) -> None:
        self._busy += step
        self._metrics.busy.set(self._busy)

    async def _body(self, request: Request) -> bytes:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != _JSON:
            raise Refused(415, Why.MEDIA_TYPE, f"the body must be {_JSON}")
        most = self._limits.max_body_bytes
        declared = request.headers.get("content-length", "0")
        # The rest of a refused body is read and discarded, so that the client can read the answer.
        if declared.isdigit() and int(declared) > most:
            raise Refused(413, Why.TOO_LARGE, f"{declared} bytes; at most {most}")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                async for part in request.stream():
                    if size + len(part) > most:
                        raise Refused(413, Why.TOO_LARGE, f"more than {most} bytes")
                    self._hold(len(part))
                    size += len(part)
                    parts.append(part)
        except BaseException as error:
            self._release(size)
            if not isinstance(error, TimeoutError):
                raise
            detail = f"no body within {self._limits.request_seconds:g} s"
            raise Refused(408, Why.TOO_SLOW, detail) from None
        return b"".join(parts)


def make_app(service: SearchService) -> FastAPI:
    """The routes of a query agent. The caller starts and stops the service."""
    metrics = SearchMetrics(service)
    desk = Desk(service, metrics)
    answering = Answering(service, metrics)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorReply, "description": text} for status, text in _REASONS.items()
    }
    app = FastAPI(
        title="Kinstream query agent",
        version="1",
        description="Nearest neighbours under metrics that are being learned. Every answer names the one model and "
        "the one state of the catalogue that it comes from.",
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.desk = desk
    app.state.connections = Connections(service.limits, metrics)
    app.add_middleware(_Admitted, most=service.limits.max_connections)
    app.add_middleware(_Timed, metrics=metrics)
    _handle_errors(app)

    def post(path: str, reply: Any, asked: Any, summary: str) -> Callable[[_Handler], _Handler]:
        some = (400, 404, 405, 408, 413, 415, 422, 500, 503, 504)
        body = {"required": True, "content": {_JSON: {"schema": _schema(asked)}}}
        made: Callable[[_Handler], _Handler] = app.post(
            path,
            summary=summary,
            response_model=reply,
            responses={status: errors[status] for status in some},
            openapi_extra={"requestBody": body},
        )
        return made

    @post("/search", SearchReply, SearchRequest, "The nearest items of vectors")
    async def search(request: Request) -> Response:
        return await desk.answer(request, answering.search)

    @post(
        "/similar",
        SearchReply,
        SimilarItemsRequest,
        "The nearest items of several items, each without the item itself",
    )
    async def similar_items(request: Request) -> Response:
        return await desk.answer(request, answering.similar_items)

    @app.get(
        "/similar/{item:path}",
        summary="The nearest items of an item, without the item itself",
        response_model=SearchReply,
        responses={status: errors[status] for status in (404, 405, 422, 500, 503, 504)},
    )
    async def similar(item: str, space: Space = None, k: Neighbours = 10) -> Response:
        return await desk.answer(None, lambda _: answering.similar([item], space, k))

    @post("/similar/{item:path}", SearchReply, SimilarRequest, "The same, with a body")
    async def similar_posted(item: str, request: Request) -> Response:
        return await desk.answer(request, lambda body: answering.similar_posted(item, body))

    @post("/transform", TransformReply, TransformRequest, "The images of vectors under the serving model")
    async def transform(request: Request) -> Response:
        return await desk.answer(request, answering.transform)

    @app.get(
        "/spaces",
        summary="The spaces, and the serving model of each",
        response_model=SpacesReply,
        responses={status: errors[status] for status in (405, 500, 503, 504)},
    )
    async def spaces() -> Response:
        return await desk.answer(None, lambda _: answering.spaces())

    _probes(app, service, metrics)
    return app


def _probes(app: FastAPI, service: SearchService, metrics: SearchMetrics) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        ok, body = service.health.live()
        return _json(200 if ok else 503, body)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        ok, body = service.health.ready()
        return _json(200 if ok else 503, body | {"waiting_for": service.waiting_for()})

    @app.get("/metrics", include_in_schema=False)
    def exposition(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(metrics.registry), media_type=content_type, headers=_SAFE)


def _schema(kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = kind.model_json_schema()
    return found


def _json(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    content = json.dumps(body, ensure_ascii=False).encode()
    return Response(content, status, media_type=_JSON, headers=_SAFE | (headers or {}))


def _handle_errors(app: FastAPI) -> None:
    """Every error in one form."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return _json(error.status, error.body(), error.headers)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        why = {404: Why.NOT_FOUND, 405: Why.NOT_ALLOWED}.get(error.status_code, Why.INVALID)
        headers = dict(error.headers or {})
        return _json(error.status_code, Refused(error.status_code, why, str(error.detail)).body(), headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return _json(422, Refused(422, Why.INVALID, str(first["msg"]), place=place).body())

    async def gone(request: Request, error: Exception) -> Response:
        return _json(400, Refused(400, Why.NOT_JSON, "the client went away").body())

    async def fault(request: Request, error: Exception) -> Response:
        log.error("%s %s could not be answered", request.method, request.url.path, exc_info=error)
        return _json(500, Refused(500, Why.FAULT, _FAULT).body())

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, fault)


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Admitted:
    """Limits the number of requests at a time; probes are not limited."""

    def __init__(self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]], most: int) -> None:
        self._app, self._most = app, most
        self._inside = 0

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif self._inside >= self._most:
            detail = f"{self._inside} requests at once; the limit is search.max_connections"
            refused = Refused(503, Why.BUSY, detail, retry_seconds=_RETRY_SECONDS)
            await _json(503, refused.body(), refused.headers | {"Connection": "close"})(scope, receive, send)
        else:
            self._inside += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._inside -= 1


class _Timed:
    """Measures the duration of every request, from its headers to the end of its answer."""

    def __init__(
        self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]], metrics: SearchMetrics
    ) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), "500"

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.seconds.labels(route, status).observe(time.perf_counter() - began)
