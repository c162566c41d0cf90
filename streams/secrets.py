"""Keeps secrets out of logs and messages, as the last of several defences.

Secrets are `SecretStr` in the settings and are passed to clients only. Texts of other libraries, such as an error with
a URL in it or a traceback, pass through `hide` on their way to a terminal or a log.
"""

from __future__ import annotations

import logging
import re
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_MASK: Final = "***"
#: Masking shorter secrets would make texts unreadable and protect nothing.
_SHORTEST: Final = 4
_USERINFO: Final = re.compile(r"://[^/\s]*@")
_QUERY: Final = re.compile(
    r"([?&](?:[\w.-]*(?:secret|token|password|passwd|signature|credential|key)[\w.-]*|sig)=)[^&#\s'\"]+",
    re.IGNORECASE,
)
_known: set[str] = set()
#: Files that were said to be readable by others.
_warned: set[str] = set()
_LOG: Final = logging.getLogger("kinstream.secrets")


def without_secret(url: str) -> str:
    """A URL, or a text with URLs in it, without user information and without credentials in its query."""
    return _QUERY.sub(rf"\1{_MASK}", _USERINFO.sub(f"://{_MASK}@", url))


def remember(*secrets: str) -> None:
    """Make `hide` mask these secrets from now on, anywhere in a text."""
    _known.update(secret for secret in secrets if len(secret) >= _SHORTEST)


def remember_url(url: str) -> None:
    """Make `hide` mask the credentials of a URL, also where a text quotes them alone."""
    for part in re.split(r"::", url):
        try:
            found = urlsplit(part).password
        except ValueError:
            continue
        if found:
            remember(found, unquote(found))


def hide(text: str) -> str:
    """The text without any secret that the settings hold."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return without_secret(text)


def warn_of_readers(file: str | Path) -> None:
    """Say once that other users of this machine can read a file with a secret in it."""
    path = str(file)
    if path not in _warned and _others_can_read(Path(path)):
        _warned.add(path)
        _LOG.warning(
            "%s holds a secret, and other users of this machine can read it: chmod o-r %s", path, path
        )


def _others_can_read(path: Path) -> bool:
    """Whether the permissions of a file and of all folders above it let every user read it."""
    try:
        real = path.resolve(strict=True)
        return bool(real.stat().st_mode & stat.S_IROTH) and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in real.parents
        )
    except (OSError, RuntimeError):
        return False


class HidingFormatter(logging.Formatter):
    """A formatter whose lines, tracebacks included, pass through `hide`."""

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))
