"""Requests that carry credentials follow no redirect."""

from __future__ import annotations

import urllib.request
from typing import Any


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials go to the address of the settings and to no other: a redirect is an error of its status."""

    def redirect_request(self, *_: Any) -> None:
        return None
