"""Checks with the brokers, before anything begins, that a principal has the permissions of its role.

A missing permission then ends a start at once, with one line that names it. Otherwise a delivery would never succeed,
or a group would never be joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kinstream.streams.errors import AccessDenied
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import who
from kinstream.streams.kafka.rights.acls import Grant, role
from kinstream.streams.settings import Settings

#: Other operations whose grant implies an operation (Kafka's authoriser).
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
    """Refuse if a role lacks a permission that it needs.

    Parameters
    ----------
    groups : the consumer groups that will be used; those with a grant on groups are checked.
    needed : roles of topics whose optional grants this agent's settings require.

    Raises
    ------
    AccessDenied : names every operation that is missing, and the command that lists what to allow.
    BrokerUnavailable, LoginRefused : as every request to the brokers.
    """
    names = {settings.topic(topic) for topic in needed}
    grants = [
        replace(grant, optional=False) if grant.name in names else grant
        for grant in role(name).grants(settings.topics.prefix, agent, source_topics(settings, agent))
    ]
    missing = lacking(cluster, grants, groups)
    if missing:
        command = " ".join(filter(None, ("kinstream topics acls", name, agent)))
        raise AccessDenied(
            f"{who(settings.kafka)} lacks {', '.join(missing)}: `{command} --principal User:NAME` lists what to allow"
        )


def source_topics(settings: Settings, agent: str | None) -> list[str]:
    """The topic of the source of that name; without one, those of all sources."""
    found = settings.sources.get(agent) if agent else None
    sources = settings.sources.values() if found is None else [found]
    return sorted({source.topic for source in sources})


def lacking(cluster: Cluster, grants: Iterable[Grant], groups: Iterable[str] = ()) -> list[str]:
    """`OPERATION on RESOURCE` for each operation of the grants that the brokers do not allow.

    Left out are grants on a prefix of topics, since creating reports what is missing, and optional grants.
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
