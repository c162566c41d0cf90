"""Receives requests on the event loop, and has them processed in a pool of threads.

The event loop only receives requests and sends answers, so that probes are answered at any time; reading JSON, the work
itself and writing JSON run in the pool.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

from fastapi import Request, Response

from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.service.neighbours import Neighbours
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.service import threads_of
from kinstream.streams.settings import ServeSettings

JSON: Final = "application/json"
#: An answer that others than the threads make.
Promised = Future[bytes]
RETRY_SECONDS: Final = 1
FAULT: Final = "see the log of the server"
SAFE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Desk:
    """Receives requests within the limits, and processes them in a pool of threads."""

    def __init__(self, limits: ServeSettings, metrics: ServiceMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._log = logging.getLogger("kinstream.serve")
        self._pool = ThreadPoolExecutor(threads_of(self._limits), "kinstream-serve")
        self._busy = 0
        #: Answers that wait for others than the threads.
        self._promises = 0
        #: Bytes of request bodies in memory.
        self._held = 0
        self._neighbours = Neighbours()

    def close(self) -> None:
        """Accept no more work, without waiting for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: Request | None, job: Callable[[bytes], bytes | Promised]) -> Response:
        """Process a request, with its body if there is one.

        Parameters
        ----------
        job : the work of a thread. What it promises is waited for without a thread.

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
            future = asyncio.get_running_loop().run_in_executor(
                self._pool, copy_context().run, self._worked, job, body
            )
        except BaseException:
            self._held -= len(body)
            raise
        self._count(+1)
        future.add_done_callback(lambda _: self._release(len(body)))
        # The place is freed when the work is done, even if no client waits for it any more.
        future.add_done_callback(self._done)
        left = self._limits.request_seconds - (time.monotonic() - began)
        try:
            async with asyncio.timeout(max(left, 0.001)):
                content = await asyncio.shield(future)
                if not isinstance(content, bytes):
                    content = await self._promised(content)
        except TimeoutError:
            detail = f"no answer within {self._limits.request_seconds:g} s (serve.request_seconds)"
            raise Refused(504, Why.TIMEOUT, detail, retry_seconds=RETRY_SECONDS) from None
        except Refused:
            raise
        except Exception:
            # Logged here: the framework would also close the connection.
            self._log.exception("a request could not be answered")
            raise Refused(500, Why.FAULT, FAULT) from None
        return Response(content, media_type=JSON, headers=SAFE)

    async def _promised(self, promised: Promised) -> bytes:
        if self._promises >= self._limits.max_concurrent:
            raise self._too_busy(
                f"{self._promises} answers wait for the brokers; the limit is serve.max_concurrent"
            )
        self._promises += 1
        try:
            return await asyncio.wrap_future(promised)
        finally:
            self._promises -= 1

    def _worked(self, job: Callable[[bytes], bytes | Promised], body: bytes) -> bytes | Promised:
        with self._neighbours.counted():
            return job(body)

    def _done(self, future: asyncio.Future[bytes | Promised]) -> None:
        self._count(-1)
        if not future.cancelled():
            future.exception()  # already logged, or no client waits for it

    def _check_places(self) -> None:
        if self._busy >= self._limits.max_concurrent:
            raise self._too_busy(
                f"{self._busy} requests are being processed; the limit is serve.max_concurrent"
            )

    def _too_busy(self, detail: str) -> Refused:
        return Refused(503, Why.BUSY, detail, retry_seconds=RETRY_SECONDS)

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
        if media != JSON:
            raise Refused(415, Why.MEDIA_TYPE, f"the body must be {JSON}")
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
