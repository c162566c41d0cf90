"""Imports faust without aiohttp."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Final

_CLIENT: Final = "aiohttp.client"


def import_web_types() -> None:
    """Import what names types of the web before faust does. faust wants aiohttp there for the class of a client, which
    it names and does not make: 12 MB, and a fifth of a second of a start. Its web server, which is aiohttp, is off.
    """
    if "aiohttp" in sys.modules or "faust.types.web" in sys.modules:
        return
    client = ModuleType(_CLIENT)
    client.ClientSession = object  # type: ignore[attr-defined]
    sys.modules |= {"aiohttp": ModuleType("aiohttp"), _CLIENT: client}
    try:
        import_module("faust.types.web")
    finally:
        # Who needs aiohttp imports it.
        del sys.modules["aiohttp"], sys.modules[_CLIENT]
