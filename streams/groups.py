"""Names of consumer groups: deployments with other topics never share one, even on one cluster."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT_PREFIX: Final = "kinstream"


class Group(NamedTuple):
    """An agent's group: a new generation is a new group."""

    application: str
    generation: int


def start_of(prefix: str) -> str:
    """The prefix of the groups of a deployment.

    A prefix of topics holds no dot, so no deployment's prefix of groups begins with that of another. With the default
    prefix of topics, the names are those of earlier versions.
    """
    return f"{DEFAULT_PREFIX}-" if prefix == DEFAULT_PREFIX else f"{prefix}."


def name_of(prefix: str, application: str, generation: int) -> str:
    """The group of an agent's generation, such as `kinstream-learner-opml-v1` or `staging.learner-opml-v1`."""
    return f"{start_of(prefix)}{application}-v{generation}"


def read(prefix: str, name: str) -> Group | None:
    """The inverse of `name_of`; None for a group of another deployment."""
    found = re.fullmatch(r"(?P<application>.+)-v(?P<generation>[0-9]+)", name.removeprefix(start_of(prefix)))
    if found is None or not name.startswith(start_of(prefix)):
        return None
    return Group(found["application"], int(found["generation"]))
