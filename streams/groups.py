"""Names of consumer groups: those of deployments with other topics never meet, on one cluster too."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT_PREFIX: Final = "kinstream"


class Group(NamedTuple):
    """An agent's group: a new generation is a new group."""

    application: str
    generation: int


def start_of(prefix: str) -> str:
    """How the groups of a deployment begin.

    A prefix of topics holds no dot, so that no deployment's groups begin as another one's do. With the usual prefix
    they have the names that they always had.
    """
    return f"{DEFAULT_PREFIX}-" if prefix == DEFAULT_PREFIX else f"{prefix}."


def name_of(prefix: str, application: str, generation: int) -> str:
    """The group of an agent's generation, such as `kinstream-learner-opml-v1` or `staging.learner-opml-v1`."""
    return f"{start_of(prefix)}{application}-v{generation}"


def read(prefix: str, name: str) -> Group | None:
    """The inverse of `name_of`; None for a group that is not of that deployment."""
    found = re.fullmatch(r"(?P<application>.+)-v(?P<generation>[0-9]+)", name.removeprefix(start_of(prefix)))
    if found is None or not name.startswith(start_of(prefix)):
        return None
    return Group(found["application"], int(found["generation"]))
