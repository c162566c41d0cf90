"""Requests to OpenSearch: connections that are kept, a limit of time, and errors as those of a store."""

from __future__ import annotations

import json
import time
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from kinstream.search.stores.base import StoreAway
from kinstream.streams.errors import SettingsError
from kinstream.streams.secrets import hide

#: Largest answer.
_MOST_BYTES: Final = 1 << 28
_PART: Final = 1 << 16
#: What of an error is shown.
_SHOWN: Final = 200
#: Connections that are kept: as many as requests at once.
_KEPT: Final = 64


class Refused(Exception):
    """The server understands the request, and does not take it.

    Parameters
    ----------
    kind : what the server calls the cause.
    """

    def __init__(self, detail: str, kind: str = "") -> None:
        super().__init__(detail)
        self.kind = kind

    @classmethod
    def of(cls, answer: Any) -> Exception:
        """The error that an answer holds: this, or StoreAway if the fault is not the request's."""
        error = answer.get("error") if isinstance(answer, dict) else None
        status = answer.get("status") if isinstance(answer, dict) else None
        kind, reason = "", str(error or "no reason")
        while isinstance(error, dict):
            # The innermost cause says most; of several shards the first stands for all.
            kind, reason = str(error.get("type", kind)), str(error.get("reason", reason))
            causes = [one.get("reason") for one in error.get("failed_shards", []) if isinstance(one, dict)]
            error = error.get("caused_by") or next(iter(causes), None)
        detail = hide(f"{status}: {reason[:_SHOWN]}")
        return cls(detail, kind) if status == 400 else StoreAway(detail)


class Client:
    """A client of one server. Several threads may use it.

    Parameters
    ----------
    connection : `http://HOST:PORT` or `https://USER:PASSWORD@HOST:PORT`; certificates of the system are trusted, or
        those of the file that SSL_CERT_FILE names.
    seconds : longest wait for one answer.

    Raises
    ------
    SettingsError : it is not the URL of a server; the message does not quote it, as it may hold a password.
    """

    def __init__(self, connection: str, seconds: float) -> None:
        parts = _server_of(connection)
        self._seconds = seconds
        self._path = parts.path.rstrip("/")
        self._headers = {"accept": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers |= urllib3.make_headers(basic_auth=login)
        host = parts.hostname or ""
        kept: dict[str, Any] = {"maxsize": _KEPT, "block": False, "retries": False}
        self._pool: urllib3.HTTPConnectionPool = (
            urllib3.HTTPSConnectionPool(host, parts.port or 443, **kept)
            if parts.scheme == "https"
            else urllib3.HTTPConnectionPool(host, parts.port or 9200, **kept)
        )

    def ask(self, method: str, path: str, lines: list[Any] | None = None) -> Any:
        """The JSON object that the server answers.

        Parameters
        ----------
        lines : a body, one JSON value a line.

        Raises
        ------
        Refused : it does not take the request.
        StoreAway : for any other reason.
        """
        body = None if lines is None else "".join(f"{json.dumps(one)}\n" for one in lines).encode()
        limit = time.monotonic() + self._seconds
        try:
            try:
                status, content = self._answer(method, path, body, limit)
            except ProtocolError:
                # The server may have ended a kept connection meanwhile; nothing is written, so it is asked again.
                status, content = self._answer(method, path, body, limit)
        except (HTTPError, OSError) as error:
            raise StoreAway(hide(_line(error))) from None
        if 300 <= status < 400:
            raise StoreAway(f"{status}: it names another address, which is not followed")
        try:
            found = json.loads(content)
        except ValueError:
            raise StoreAway(f"{status}: the answer is not JSON") from None
        if status != 200:
            raise Refused.of(
                {"error": found.get("error"), "status": status} if isinstance(found, dict) else {}
            )
        if not isinstance(found, dict):
            raise StoreAway("the answer is not a JSON object")
        return found

    def close(self) -> None:
        self._pool.close()

    def _answer(self, method: str, path: str, body: bytes | None, limit: float) -> tuple[int, bytes]:
        left = limit - time.monotonic()
        if left <= 0.0:
            raise StoreAway(f"no answer within {self._seconds:g} s")
        headers = self._headers | ({} if body is None else {"content-type": "application/x-ndjson"})
        answer = self._pool.urlopen(
            method,
            self._path + path,
            body=body,
            headers=headers,
            redirect=False,
            timeout=urllib3.Timeout(total=left),
            preload_content=False,
        )
        content = bytearray()
        try:
            # A limit of a read alone would allow a server that sends one byte at a time.
            while part := answer.read1(_PART):
                content += part
                if len(content) > _MOST_BYTES:
                    raise StoreAway(f"the answer is larger than {_MOST_BYTES} bytes")
                if time.monotonic() > limit:
                    raise StoreAway(f"no answer within {self._seconds:g} s")
        except BaseException:
            answer.close()
            raise
        answer.release_conn()
        return answer.status, bytes(content)


def _server_of(connection: str) -> SplitResult:
    try:
        parts = urlsplit(connection.strip())
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if known and not parts.query and not parts.fragment:
            return parts
    except ValueError:
        pass
    raise SettingsError("connection: not the URL of a server: write https://USER:PASSWORD@HOST:PORT")


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
