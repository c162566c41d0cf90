"""A client of `kinstream serve`: searches, and says what was done with their lists."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final

from kinstream.streams.errors import KinstreamError
from kinstream.streams.redirects import NoRedirect

#: Statuses after which the same request may succeed.
_PASSING: Final = (429, 503, 504)
_REFUSED: Final = ("forged-list", "late-list", "unknown-item")
#: The token goes to the address of the service alone.
_OPENER: Final = urllib.request.build_opener(NoRedirect)


class ServiceError(KinstreamError):
    """The service did not answer a request.

    Attributes
    ----------
    status : of HTTP; 0 if there was no answer.
    reason, place : as the service names them, such as "unknown-space", and where in the request, or None.
    retry_seconds : when to ask again; None if that would not help.
    """

    def __init__(self, detail: str, status: int, reason: str, place: str | None, retry_seconds: float | None):
        super().__init__(f"{reason}: {detail}" + (f" ({place})" if place else ""))
        self.status, self.reason, self.place, self.retry_seconds = status, reason, place, retry_seconds


class ServiceBusy(ServiceError):
    """The rate of this client is used up (429), or the service, its store or its brokers are away (503, 504, or no
    answer): ask again after `retry_seconds`."""


class FeedbackRefused(ServiceError):
    """The list is not one of this space (`forged-list`), or older than it may be (`late-list`), or had no such item
    (`unknown-item`). Nothing of the request was written."""


@dataclass(frozen=True)
class FoundList:
    """What a search has found, best first.

    Parameters
    ----------
    list_id : None if the service did not record this list: it takes no feedback then.
    neighbours : as the service answers: each has an `id`, and as the space has them `fields`, `similarity`, `value`.
    """

    list_id: str | None
    neighbours: list[dict[str, Any]]
    _client: SearchClient = field(repr=False, compare=False)

    @property
    def ids(self) -> list[str]:
        return [one["id"] for one in self.neighbours]

    def feedback(self, item: str, action: str | None = None, **more: Any) -> None:
        """Say what was done with an item, as `SearchClient.feedback`."""
        self._client.feedback(self.list_id, item, action, **more)

    def outcome(self, outcome: float, **more: Any) -> None:
        """Say how well the whole list has served, 0 to 1; the items with an action share it."""
        self._client.send([{"list_id": self.list_id, "outcome": outcome, **more}])


class SearchClient:
    """A client of one space. Any thread may use it.

    Parameters
    ----------
    url : of the service, such as "http://localhost:8088".
    space : may be left out if the service has only one.
    token : of this client, if the service asks for one.
    seconds : longest wait for an answer.
    tries : how often feedback is sent until it is acknowledged.
    """

    def __init__(
        self,
        url: str,
        space: str | None = None,
        *,
        token: str | None = None,
        seconds: float = 15.0,
        tries: int = 5,
    ) -> None:
        self._url, self._seconds, self._tries = url.rstrip("/"), seconds, tries
        self._space = {} if space is None else {"space": space}
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def search(
        self, vector: Iterable[float] | None = None, text: str | None = None, k: int = 10, **more: Any
    ) -> FoundList:
        """The nearest items of a vector, a text or both.

        Parameters
        ----------
        more : further fields of the request, such as `user`, `session` and `filter`.

        Raises
        ------
        ServiceBusy, ServiceError : there is no answer.
        """
        asked: dict[str, Any] = {"k": k, **more}
        if vector is not None:
            asked["vectors"] = [[float(x) for x in vector]]
        if text is not None:
            asked["texts"] = [text]
        (result,) = self._post("/search", asked)["results"]
        return FoundList(result.get("list_id"), result["neighbours"], self)

    def feedback(self, list_id: str | None, item: str, action: str | None = None, **more: Any) -> None:
        """Say what was done with an item of a list; returns once the brokers have it.

        Of several with the same list, item, action and `key`, the first counts, so a repeat is harmless.

        Parameters
        ----------
        action : the kind, such as "cited"; None is a click.
        more : `value` (0 to 1), `weight`, `key`, and `retract`, which takes it back, after the window too.

        Raises
        ------
        FeedbackRefused, ServiceBusy, ServiceError : it was not written, or nobody knows; it may be sent again.
        """
        given = {"list_id": list_id, "item": item, "action": action, **more}
        self.send([{name: value for name, value in given.items() if value is not None}])

    def send(self, feedback: Sequence[Mapping[str, Any]]) -> None:
        """Send feedback as the service takes it, all or nothing, again and again until it is acknowledged.

        Raises
        ------
        As of `feedback`.
        """
        if any(one.get("list_id") is None for one in feedback):
            detail = (
                "this list was not recorded: the space needs `record`, and 1.0 of the lists for all of them"
            )
            raise FeedbackRefused(detail, 0, "no-list", None, None)
        for left in range(self._tries - 1, -1, -1):
            try:
                self._post("/feedback", {"feedback": [dict(one) for one in feedback]})
                return
            except ServiceBusy as error:
                if not left:
                    raise
                time.sleep(error.retry_seconds or 1.0)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        data = json.dumps(self._space | body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        try:
            with _OPENER.open(request, timeout=self._seconds) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except (OSError, ValueError, HTTPException) as error:
            raise ServiceBusy(f"{self._url} does not answer: {error}", 0, "no-answer", None, 1.0) from None


def _refused(error: urllib.error.HTTPError) -> ServiceError:
    try:
        told = json.load(error)
        reason, detail, place = str(told["reason"]), str(told["detail"]), told["place"]
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        # Of something between, such as a proxy.
        reason, detail, place = f"status-{error.code}", str(error.reason), None
        if "location" in error.headers:
            detail += ": redirects are not followed; the client needs the address that answers itself"
    kind = ServiceBusy if error.code in _PASSING else ServiceError
    # The items of our own index have a reason of this name too.
    kind = FeedbackRefused if reason in _REFUSED and error.code == 422 else kind
    after = error.headers.get("retry-after", "")
    wait = float(after) if after.isdecimal() else 1.0 if kind is ServiceBusy else None
    return kind(detail, error.code, reason, place, wait)
