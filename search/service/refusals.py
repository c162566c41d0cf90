"""Refused requests, all in one form."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Why(StrEnum):
    """The `reason` of a refused request."""

    NOT_JSON = "not-json"
    NOT_FOUND = "not-found"
    NOT_ALLOWED = "method-not-allowed"
    MEDIA_TYPE = "media-type"
    TOO_LARGE = "too-large"
    TOO_SLOW = "too-slow"
    INVALID = "invalid"
    NOT_FINITE = "not-finite"
    WRONG_DIMENSION = "wrong-dimension"
    UNKNOWN_SPACE = "unknown-space"
    UNKNOWN_ITEM = "unknown-item"
    NOT_READY = "not-ready"
    STORE = "store"
    BROKERS = "brokers"
    FORGED_LIST = "forged-list"
    LATE_LIST = "late-list"
    UNAUTHORIZED = "unauthorized"
    RATE = "rate-limit"
    BUSY = "busy"
    STOPPING = "stopping"
    TIMEOUT = "timeout"
    FAULT = "fault"


class Refused(Exception):
    """A request that is not answered.

    Parameters
    ----------
    status : of HTTP.
    detail : one sentence for the user.
    place : where in the request, such as `vectors[3][0]`; None for all of it.
    retry_seconds : when to retry; None if that would not help.
    """

    def __init__(
        self,
        status: int,
        why: Why,
        detail: str,
        *,
        place: str | None = None,
        retry_seconds: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{why.value}: {detail}")
        self.status = status
        self.why = why
        self.detail = detail
        self.place = place
        self.headers = dict(headers or {})
        if retry_seconds is not None:
            self.headers["Retry-After"] = str(retry_seconds)

    def body(self) -> dict[str, Any]:
        """The JSON that is sent."""
        return {"reason": self.why.value, "detail": self.detail, "place": self.place}
