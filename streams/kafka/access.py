"""Asks the brokers, before anything begins, whether a principal may do what its role needs.

A missing permission then ends a start at once, with one line that names it, instead of a delivery that never comes or
a group that is never joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kinstream.streams.errors import AccessDenied
from kinstream.streams.kafka.acls import Grant, role
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import who
from kinstream.streams.settings import Settings

#: What an operation is allowed by besides itself (Kafka's authoriser).
_IMPLIED_BY: Final = {
    "DESCRIBE": frozenset({"READ", "WRITE", "DELETE", "ALTER"}),
    "DESCRIBE_CONFIGS": frozenset({"ALTER_CONFIGS"}),
}


def check_role(
    cluster: Cluster,
    settings: Settings,
    name: str,
    agent: str | None = None,
    groups: Iterable[str] = (),
    needed: Iterable[str] = (),
) -> None:
    """Refuse where a role lacks something that it needs.

    Parameters
    ----------
    groups : the consumer groups that will be used; of those, the ones that a grant on groups is for are asked about.
    needed : roles of topics whose grants are optional, but not as the agent is set.

    Raises
    ------
    AccessDenied : names every operation that is missing, and the command that tells what to allow.
    BrokerUnavailable, LoginRefused : as every question to the brokers.
    """
    names = {settings.topic(topic) for topic in needed}
    grants = [
        replace(grant, optional=False) if grant.name in names else grant
        for grant in role(name).grants(settings.topics.prefix, agent)
    ]
    missing = lacking(cluster, grants, groups)
    if missing:
        command = " ".join(filter(None, ("kinstream topics acls", name, agent)))
        raise AccessDenied(
            f"{who(settings.kafka)} lacks {', '.join(missing)}: `{command} --principal User:NAME` tells what to allow"
        )


def lacking(cluster: Cluster, grants: Iterable[Grant], groups: Iterable[str] = ()) -> list[str]:
    """`OPERATION on RESOURCE` for each operation of the grants that the brokers do not allow.

    A grant on topics that begin so is left out, for creating says by itself what is missing, and so is an optional one.
    """
    wanted: dict[str, tuple[str, ...]] = {}
    for grant in (one for one in grants if not one.optional):
        if grant.resource == "topic" and not grant.prefixed:
            wanted[f"topic {grant.name}"] = grant.operations
        elif grant.resource == "group":
            for group in groups:
                if group == grant.name or (grant.prefixed and group.startswith(grant.name)):
                    wanted[f"group {group}"] = grant.operations
    allowed = cluster.operations(
        [name.removeprefix("topic ") for name in wanted if name.startswith("topic ")],
        [name.removeprefix("group ") for name in wanted if name.startswith("group ")],
    )
    missing = []
    for resource, operations in wanted.items():
        found = allowed[resource]
        if found is not None and "ALL" not in found:
            missing += [
                f"{operation} on {resource}"
                for operation in operations
                if operation not in found and not (_IMPLIED_BY.get(operation, frozenset()) & found)
            ]
    return missing
