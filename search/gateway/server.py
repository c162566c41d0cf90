"""The gateway as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinstream.search.service import process
from kinstream.streams.extras import GATEWAY, require
from kinstream.streams.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kinstream.search.service.gateway_service import GatewayService


def require_packages() -> None:
    """Refuse to start without the packages of the extra.

    Raises
    ------
    SettingsError : a package is missing; the message says what to install.
    """
    require(*GATEWAY, who="gateway", extra="gateway")


class Server(process.Server):
    """A gateway. It reads from the brokers only if a space follows a learner.

    Raises
    ------
    SettingsError : a setting is wrong, or a package is missing.
    """

    def __init__(self, settings: Settings) -> None:
        require_packages()
        from kinstream.search.service.gateway_service import GatewayService

        self._service: GatewayService = GatewayService(settings)
        role = None if self._service.models is None else "models"
        super().__init__(settings, settings.gateway, "gateway", role)

    @property
    def service(self) -> GatewayService:
        return self._service

    def _make_app(self) -> FastAPI:
        from kinstream.search.gateway.http import make_app

        return make_app(self._service)
