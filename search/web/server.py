"""The query agent as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinstream.search.service import process
from kinstream.streams.extras import SEARCH, require
from kinstream.streams.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kinstream.search.backends.index import SearchService


def require_packages() -> None:
    """Refuse to start without the packages of the extra.

    Raises
    ------
    SettingsError : a package is missing; the message names what to install.
    """
    require(*SEARCH, who="search", extra="search")


class Server(process.Server):
    """A query agent.

    Raises
    ------
    SettingsError : a setting is wrong, or a package is missing.
    """

    def __init__(self, settings: Settings) -> None:
        require_packages()
        from kinstream.search.backends.index import SearchService

        super().__init__(settings, settings.search, "query agent", "search")
        self._service: SearchService = SearchService(settings)

    @property
    def service(self) -> SearchService:
        return self._service

    def _make_app(self) -> FastAPI:
        from kinstream.search.service.routes import make_app

        return make_app(self._service)
