"""The frame of an application: the desk, limits, one form of errors, probes, the schemas of routes."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kinstream.search.service.clients import Clients, audited, clients_of, noting
from kinstream.search.service.connections import Connections
from kinstream.search.service.desk import FAULT, JSON, RETRY_SECONDS, SAFE, Desk
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.replies import ErrorReply
from kinstream.search.service.service import Service
from kinstream.streams.settings import ServeSettings
from kinstream.streams.worker.page.metrics_text import RenderedMetrics

#: Routes answered under any number of requests.
PROBES: Final = frozenset({"/livez", "/healthz", "/readyz", "/metrics"})
_REASONS: Final = {
    400: "The body is not JSON.",
    401: "serve.clients_file names the clients, and the request has the token of none.",
    404: "The space, item or path does not exist.",
    405: "The path does not support this method.",
    408: "The body did not arrive in time.",
    413: "The body is larger than serve.max_body_bytes.",
    415: "The body is of another media type than application/json.",
    429: "The client asks more often than serve.client_rate; Retry-After gives the time to retry.",
    422: "The request does not fit the schema, the space or the limits; `place` names the part.",
    500: "An internal error; the log of the server has details.",
    503: "Not ready, or too many requests at once; Retry-After gives the time to retry.",
    504: "The answer took longer than serve.request_seconds.",
}
#: What a route with a body may answer besides 200.
_POSTED: Final = tuple(_REASONS)

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Response]])


class Application:
    """The application of the service, to which its routes are added.

    Attributes
    ----------
    app : with `app.state.desk`, `app.state.metrics` and `app.state.connections`.
    """

    def __init__(self, service: Service, metrics: ServiceMetrics) -> None:
        limits = service.limits
        self.desk = Desk(limits, metrics)
        self.app = FastAPI(
            title="Kinstream",
            version="1",
            description="Queries under models that are being learned, to our own index or to your vector store. Every "
            "answer names the model and the state of the items that it comes from.",
            docs_url=None,
            redoc_url=None,
            swagger_ui_oauth2_redirect_url=None,
        )
        self.app.state.desk = self.desk
        self.app.state.metrics = metrics
        self.app.state.connections = Connections(limits, metrics)
        #: What answers a path, by method and path.
        self._direct: dict[tuple[str, str], _Direct] = {}
        self.app.add_middleware(_Admitted, limits=limits, direct=self._direct)
        clients = clients_of(limits)
        if clients is not None or limits.audit:
            self.app.add_middleware(_Known, clients=clients or Clients(None, None), logged=limits.audit)
        self.app.add_middleware(_Timed, metrics=metrics)
        self._errors: dict[int | str, dict[str, Any]] = {
            status: {"model": ErrorReply, "description": text} for status, text in _REASONS.items()
        }
        _handle_errors(self.app, logging.getLogger("kinstream.serve"))
        _probes(self.app, service, metrics)

    def post(self, path: str, reply: Any, asked: Any, summary: str) -> Callable[[_Handler], _Handler]:
        """A route with a body, by its schemas."""
        body = {"required": True, "content": {JSON: {"schema": _whole(asked.model_json_schema())}}}
        made: Callable[[_Handler], _Handler] = self.app.post(
            path,
            summary=summary,
            response_model=reply,
            responses={status: self._errors[status] for status in _POSTED},
            openapi_extra={"requestBody": body},
        )

        def route(handler: _Handler) -> _Handler:
            made(handler)
            if "{" not in path:
                self._direct["POST", path] = _Direct(path, handler)
            return handler

        return route

    def get(self, path: str, reply: Any, summary: str, *more: int) -> Callable[[_Handler], _Handler]:
        """A route without a body; `more` are its statuses besides those of every such route."""
        made: Callable[[_Handler], _Handler] = self.app.get(
            path,
            summary=summary,
            response_model=reply,
            responses={status: self._errors[status] for status in (401, 405, 429, 500, 503, 504, *more)},
        )
        return made


def _whole(schema: Any, parts: dict[str, Any] | None = None) -> Any:
    """A schema with its parts in their places: a page has other places for them than a schema by itself."""
    if isinstance(schema, list):
        return [_whole(one, parts) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = parts or schema.get("$defs", {})
    if "$ref" in schema:
        return _whole(known[schema["$ref"].removeprefix("#/$defs/")], known)
    return {name: _whole(one, known) for name, one in schema.items() if name != "$defs"}


def _probes(app: FastAPI, service: Service, metrics: ServiceMetrics) -> None:
    # `/healthz` is what the pages of workers call it.
    @app.get("/livez", include_in_schema=False)
    @app.get("/healthz", include_in_schema=False)
    async def livez() -> Response:
        ok, body = service.health.live()
        return _json(200 if ok else 503, body)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        ok, body = service.health.ready()
        return _json(200 if ok else 503, body | {"waiting_for": [one.what for one in service.waiting_for()]})

    rendered = RenderedMetrics(metrics.registry)

    @app.get("/metrics", include_in_schema=False)
    def exposition(request: Request) -> Response:
        content_type, text = rendered.page(request.headers.get("Accept", ""))
        return Response(text, media_type=content_type, headers=SAFE)


def _json(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    content = json.dumps(body, ensure_ascii=False).encode()
    return Response(content, status, media_type=JSON, headers=SAFE | (headers or {}))


def _gone() -> Response:
    return _json(400, Refused(400, Why.NOT_JSON, "the client went away").body())


def _handle_errors(app: FastAPI, log: logging.Logger) -> None:
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
        return _gone()

    async def fault(request: Request, error: Exception) -> Response:
        log.error("%s %s could not be answered", request.method, request.url.path, exc_info=error)
        return _json(500, Refused(500, Why.FAULT, FAULT).body())

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, fault)


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Direct(NamedTuple):
    """A route whose handler takes the request alone: what FastAPI does around it takes longer than HTTP itself."""

    path: str
    handler: Callable[[Request], Awaitable[Response]]

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        scope["route"] = self
        try:
            response = await self.handler(Request(scope, receive, send))
        except Refused as error:
            response = _json(error.status, error.body(), error.headers)
        except ClientDisconnect:
            response = _gone()
        await response(scope, receive, send)


class _Admitted:
    """Limits the number of requests at a time; probes are not limited."""

    def __init__(
        self,
        app: Callable[[_Scope, _Receive, _Send], Awaitable[None]],
        limits: ServeSettings,
        direct: Mapping[tuple[str, str], _Direct],
    ) -> None:
        self._app, self._most, self._direct = app, limits.max_connections, direct
        self._inside = 0

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif self._inside >= self._most:
            detail = f"{self._inside} requests at once; the limit is {self._most}, eight times serve.max_concurrent"
            refused = Refused(503, Why.BUSY, detail, retry_seconds=RETRY_SECONDS)
            await _json(503, refused.body(), refused.headers | {"Connection": "close"})(scope, receive, send)
        else:
            self._inside += 1
            try:
                await self._direct.get((scope["method"], scope["path"]), self._app)(scope, receive, send)
            finally:
                self._inside -= 1


class _Known:
    """Lets in the clients that may ask, within their limits, and logs their requests. Probes are open to all."""

    def __init__(
        self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]], clients: Clients, logged: bool
    ) -> None:
        self._app, self._clients, self._logged = app, clients, logged

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        began, status, client, space = time.perf_counter(), 500, "-", noting()

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            client = self._clients.named(scope)
            self._clients.admit(client)
        except Refused as error:
            await _json(error.status, error.body(), error.headers)(scope, receive, noted)
        else:
            await self._app(scope, receive, noted)
        finally:
            if self._logged:
                audited(client, scope, space, status, time.perf_counter() - began)


class _Timed:
    """Measures the duration of every request, from its headers to the end of its answer."""

    def __init__(
        self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]], metrics: ServiceMetrics
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
