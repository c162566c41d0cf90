"""Opens a checkpoint store, turns names into file names, and seals JSON with its own digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from fsspec.core import url_to_fs  # type: ignore[import-untyped, unused-ignore]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped, unused-ignore]

from kinstream.streams.checkpoints.files import Damaged, Files, without_secret
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.object_files import ObjectFiles
from kinstream.streams.errors import CheckpointError
from kinstream.streams.secrets import hide

_LONGEST_NAME: Final = 120


def open_files(root: str, *folders: str) -> Files:
    """The files below `root`/`folders`.

    Raises
    ------
    CheckpointError : the URL names no known kind of store.
    """
    try:
        system, path = url_to_fs(root)
    except Exception as error:  # each store brings its own errors
        raise CheckpointError(f"checkpoint store {without_secret(root)}: {hide(str(error))}") from error
    if isinstance(system, LocalFileSystem):
        return LocalFiles(os.path.join(os.path.abspath(path), *folders), os.path.abspath(path))
    url = "/".join((root.rstrip("/"), *folders))
    return ObjectFiles(system, "/".join((path.rstrip("/"), *folders)), url)


def is_local(root: str) -> bool:
    """Whether a store is a folder of this machine."""
    return isinstance(open_files(root), LocalFiles)


def file_name(name: str) -> str:
    """A file name for any name: percent-quoted, and hashed if it would be too long."""
    quoted = quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        quoted = f"{quoted[: _LONGEST_NAME // 2]}~{digest[:32]}"
    return quoted or "%"


def seal(content: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """JSON that carries the sha256 of its own canonical content."""
    text = _canonical(content)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if indent is not None:
        text = json.dumps(content, sort_keys=True, indent=indent)
    return f'{{"sha256": "{digest}", "content": {text}}}\n'.encode()


def unseal(data: bytes, place: str) -> dict[str, Any]:
    """The content of sealed JSON.

    Raises
    ------
    Damaged : it is incomplete, or changed since it was sealed; the message begins with `place`.
    """
    try:
        sealed = json.loads(data)
        content = sealed["content"]
        digest = hashlib.sha256(_canonical(content).encode()).hexdigest()
        whole = isinstance(content, dict) and digest == sealed["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{place}: torn or truncated: {error!r}") from error
    if not whole:
        raise Damaged(f"{place}: its digest does not match its content")
    return dict(content)


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
