"""Checks of the services over HTTP: permissions, clients, and what answers at their addresses."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from kinstream.cli.local.system import address_of
from kinstream.cli.system.check_result import Finding, refusable
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.rights.access import check_role
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant

#: Seconds for an answer of a service, and the largest one in bytes.
_SECONDS: Final = 3.0
_MOST: Final = 100_000


def service_findings(settings: Settings, cluster: Cluster) -> Iterator[Finding]:
    """What the query agent and the gateway need, and whether they run at the addresses of the settings."""
    for name, section in (("search", settings.search), ("gateway", settings.gateway)):
        if not section.spaces:
            continue
        follows = name == "search" or any(space.learner for space in settings.gateway.spaces.values())
        role = {"search": "search", "gateway": "models"}[name]

        def checked(name: str = name, role: str = role, follows: bool = follows) -> str:
            from kinstream.search.service.clients import clients_of

            clients_of(getattr(settings, name))
            if follows:
                check_role(cluster, settings, role)
            return f"may begin: kinstream {name}"

        yield refusable(name, checked)
        yield _running(name, address_of(section))


def unserved_findings(settings: Settings) -> Iterator[Finding]:
    """The spaces with a gate or with randomised lists that no service of these settings serves.

    Settings without a service are those of another machine: nothing can be said.
    """
    served = {*settings.search.spaces, *settings.gateway.spaces}
    for section, spaces in (("gate", settings.gate), ("randomise", settings.randomise)):
        for space in spaces:
            if served and space not in served:
                text = f"the services of these settings serve {', '.join(sorted(served))}{meant([space], served)}"
                mend = f"add the space to [gateway.spaces] or [search.spaces], or remove [{section}.{space}]"
                yield Finding(f"{section}.{space}", False, text, mend)


def _running(name: str, url: str) -> Finding:
    about = f"{name} here"
    if not url:
        return Finding(about, True, "its port is any free one: not looked for")
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=_SECONDS) as answer:
            found = json.loads(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        found = _body(error)
    except (OSError, ValueError, http.client.HTTPException):
        return Finding(about, True, f"nothing answers at {url}")
    waiting = found.get("waiting_for") if isinstance(found, dict) else None
    if not isinstance(waiting, list):
        return Finding(about, False, f"another program answers at {url}", f"end it, or set {name}.http_port")
    if waiting:
        return Finding(about, False, f"{url} waits for {'; '.join(map(str, waiting))}")
    return Finding(about, True, f"ready at {url}")


def _body(error: urllib.error.HTTPError) -> Any:
    try:
        return json.loads(error.read(_MOST))
    except (OSError, ValueError, http.client.HTTPException):
        return None
