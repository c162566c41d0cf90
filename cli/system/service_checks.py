"""Checks of the service over HTTP: permissions, clients, and what answers at its address."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from kinstream.cli.local.system import address_of
from kinstream.cli.system.check_result import Finding, refusable
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.rights.access import check_role
from kinstream.streams.settings import ServeSpaceSettings, Settings
from kinstream.streams.signals import lost_weights
from kinstream.streams.spelling import meant

#: Seconds for an answer of a service, and the largest one in bytes.
_SECONDS: Final = 3.0
_MOST: Final = 100_000


def service_findings(settings: Settings, cluster: Cluster) -> Iterator[Finding]:
    """What the service needs, and whether it runs at the address of the settings."""
    if not settings.serve.spaces:
        return

    def checked() -> str:
        from kinstream.search.service.clients import clients_of
        from kinstream.search.service.process import role_of

        clients_of(settings.serve)
        role = role_of(settings.serve)
        if role is not None:
            check_role(cluster, settings, role)
        return "may begin: kinstream serve"

    yield refusable("serve", checked)
    yield _running(address_of(settings.serve))


def unserved_findings(settings: Settings) -> Iterator[Finding]:
    """The spaces with a gate or with randomised lists that the service of these settings does not serve.

    Settings without a service are those of another machine: nothing can be said.
    """
    served = settings.serve.spaces
    for section, spaces in (("gate", settings.gate), ("randomise", settings.randomise)):
        for space in spaces:
            if served and space not in served:
                text = (
                    f"the service of these settings has {', '.join(sorted(served))}{meant([space], served)}"
                )
                mend = f"add the space to [serve.spaces], or remove [{section}.{space}]"
                yield Finding(f"{section}.{space}", False, text, mend)


def lost_findings(settings: Settings) -> Iterator[Finding]:
    """Signals that a ranking weighs from its start, or in a file, and that its space does not have."""
    for name, section in settings.serve.spaces.items():
        weighed = _weighed(settings, section) if section.ranks else {}
        lost = lost_weights([one for one, weight in weighed.items() if weight], section.known_signals, name)
        if lost is not None:
            yield Finding(f"serve.spaces.{name}", False, *lost)


def _weighed(settings: Settings, section: ServeSpaceSettings) -> dict[str, float]:
    if section.model is not None:
        from kinstream.search.queries.model import QueryModel

        try:
            blend = QueryModel.from_file(section.model).blend
        except SettingsError:
            return {}  # what else is wrong with the file is the service's to say
        return {} if blend is None else dict(zip(blend.names, blend.weights.tolist(), strict=True))
    learner = settings.learners.get(section.learner or "")
    start = None if learner is None or learner.kind != "ranking" else learner.arguments().get("start")
    return start if isinstance(start, dict) else {}


def _running(url: str) -> Finding:
    about = "serve here"
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
        return Finding(about, False, f"another program answers at {url}", "end it, or set serve.http_port")
    if waiting:
        return Finding(about, False, f"{url} waits for {'; '.join(map(str, waiting))}")
    notes = found.get("notes") or []
    return Finding(about, True, "; ".join([f"ready at {url}", *map(str, notes)]))


def _body(error: urllib.error.HTTPError) -> Any:
    try:
        return json.loads(error.read(_MOST))
    except (OSError, ValueError, http.client.HTTPException):
        return None
