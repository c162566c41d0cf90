"""Who may ask a service: bearer tokens from a file, a limit of requests for each client, and a log line for each."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final

from kinstream.search.service.neighbours import take
from kinstream.search.service.refusals import Refused, Why
from kinstream.streams.configuration.section import start_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.secrets import hide, remember, warn_of_readers
from kinstream.streams.settings import ServeSettings

log = logging.getLogger("kinstream.clients")
audit = logging.getLogger("kinstream.audit")

#: Fewest characters of a token.
MIN_TOKEN: Final = 16
#: Largest file of tokens, in bytes.
_MOST_BYTES: Final = 1_000_000
#: Seconds between two looks at the file.
_LOOK_SECONDS: Final = 1.0
#: Clients whose requests are counted for the limit; the one that has not asked for longest makes room.
_MOST_CLIENTS: Final = 10_000

#: Items that count as one request more.
_ITEMS: Final = 1_000

_space: ContextVar[list[str] | None] = ContextVar("space", default=None)
_spending: ContextVar[Callable[[int], None] | None] = ContextVar("spending", default=None)


def note_space(space: str) -> None:
    """Say which space the present request is about."""
    noted = _space.get()
    if noted is not None:
        noted[:] = [space]


def noting() -> list[str]:
    """A list that holds the space of the present request once it is known."""
    noted: list[str] = []
    _space.set(noted)
    return noted


def charge(items: int) -> None:
    """Count the present request by the items that it holds at once, before the work: once more for each 1,000.

    Raises
    ------
    Refused : what its client has asked for before is not yet made up for (429), or too many neighbours are being
        answered (503).
    """
    take(items)
    more, spend = items // _ITEMS, _spending.get()
    if more and spend is not None:
        spend(more)


class Tokens:
    """The clients of a file, which may change while it is used.

    A line is a client's name and its token, with white space between; `#` begins a comment. A client may have several
    lines, so that a new token can be used before the old one is taken away.

    Parameters
    ----------
    file : its path.
    clock : seconds, monotonic.

    Raises
    ------
    SettingsError : the file cannot be read, or a line is not valid; no token is quoted.
    """

    def __init__(self, file: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._looked = clock()
        self._seen = self._stamp()
        self._names = _read(file)
        self._trouble: str | None = None

    def client(self, header: str) -> str | None:
        """The name of the client with that `Authorization` header; None if there is none."""
        self._look()
        scheme, _, token = header.partition(" ")
        # Digests are compared, so the time of an answer says nothing about a token.
        return self._names.get(_digest(token.strip())) if scheme.lower() == "bearer" else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked, stamp = now, self._stamp()
        if stamp == self._seen and self._trouble is None:
            return
        try:
            self._names = _read(self._file)
            self._seen, trouble = stamp, None
        except SettingsError as error:
            trouble = str(error)
        if trouble != self._trouble and trouble is not None:
            log.error("the clients of before stay: %s", trouble)
        self._trouble = trouble

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: str) -> Mapping[bytes, str]:
    try:
        text = start_of(Path(file), _MOST_BYTES).decode("utf-8-sig")
    except SettingsError as error:
        raise SettingsError(f"clients_file: {error}") from None
    except OSError as error:
        raise SettingsError(f"clients_file: {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"clients_file: {file}: not text") from None
    warn_of_readers(file)
    names: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.partition("#")[0].split()
        if not parts:
            continue
        if len(parts) != 2 or len(parts[1]) < MIN_TOKEN:
            raise SettingsError(
                f"clients_file: {file} line {number}: write a name, a space and a token of at least {MIN_TOKEN} "
                "characters"
            )
        remember(parts[1])
        if names.setdefault(_digest(parts[1]), parts[0]) != parts[0]:
            raise SettingsError(f"clients_file: {file} line {number}: another client has the same token")
    if not names:
        raise SettingsError(f"clients_file: {file}: it names no client")
    return names


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Rates:
    """A limit of requests a second for each client, with a reserve of one second's worth (a token bucket).

    A request that counts as more than the reserve is let in, and the client then waits until it is made up for. Any
    thread may call it.

    Parameters
    ----------
    rate : requests a second, above 0.
    clock : seconds, monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(1.0, rate)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str) -> float:
        """Take one request of that client; or the seconds until it may ask again, above 0."""
        return self._taken(client, 1.0, 1.0)

    def spend(self, client: str, more: int) -> float:
        """Take as much for a request that was let in; or the seconds until it may ask again, if it owes something."""
        return self._taken(client, more, 0.0)

    def _taken(self, client: str, much: float, least: float) -> float:
        with self._lock:
            now = self._clock()
            left, at = self._left.pop(client, (self._most, now))
            left = min(self._most, left + (now - at) * self._rate)
            found = 0.0 if left >= least else (1.0 - left) / self._rate
            self._left[client] = (left if found else left - much), now
            if len(self._left) > _MOST_CLIENTS:
                self._left.popitem(last=False)
            return found


class Clients:
    """Lets a request in, or refuses it.

    Parameters
    ----------
    tokens : None if whoever reaches the service may ask. Then a client is an address.
    rates : None without a limit.
    """

    def __init__(self, tokens: Tokens | None, rates: Rates | None) -> None:
        self._tokens, self._rates = tokens, rates

    def named(self, scope: Mapping[str, Any]) -> str:
        """The client of a request.

        Raises
        ------
        Refused : it shows no token, or none of these (401).
        """
        if self._tokens is None:
            address = scope.get("client")
            return str(address[0]) if address else "unknown"
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        name = self._tokens.client(headers[0].decode("latin-1")) if len(headers) == 1 else None
        if name is None:
            detail = "send the header Authorization: Bearer TOKEN, with a token that this service knows"
            raise Refused(401, Why.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})
        return name

    def admit(self, client: str) -> None:
        """Count a request for the limit.

        Raises
        ------
        Refused : the client asks too often (429).
        """
        if self._rates is not None:
            _refuse(client, self._rates.wait(client))
            _spending.set(partial(self._spend, client))

    def _spend(self, client: str, more: int) -> None:
        assert self._rates is not None
        _refuse(client, self._rates.spend(client, more))


def _refuse(client: str, wait: float) -> None:
    if wait:
        raise Refused(429, Why.RATE, f"{client} asks too often", retry_seconds=math.ceil(wait))


def audited(client: str, scope: Mapping[str, Any], space: list[str], status: int, seconds: float) -> None:
    """Log who has asked for what."""
    audit.info(
        "client=%s method=%s path=%s space=%s status=%d ms=%.1f",
        client,
        scope["method"],
        hide(repr(scope["path"])),
        repr(space[0]) if space else "-",
        status,
        1_000.0 * seconds,
    )


def clients_of(limits: ServeSettings) -> Clients | None:
    """The clients that a service lets in; None if there is no limit on them.

    Raises
    ------
    SettingsError : the file of the tokens cannot be read, or a line is not valid.
    """
    if not limits.clients_file and not limits.client_rate:
        return None
    tokens = Tokens(limits.clients_file) if limits.clients_file else None
    return Clients(tokens, Rates(limits.client_rate) if limits.client_rate else None)
