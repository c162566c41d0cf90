"""Writes the chart's topics and rights: `python -m deploy.strimzi`; with `--check` it reports if they are current.

The chart's Strimzi resources are these files with the release's own prefix, agents and replication put in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from kinstream.streams.groups import start_of
from kinstream.streams.kafka.rights.acls import ROLES, Role, as_json
from kinstream.streams.topics import CATALOGUE

FOLDER: Final = Path(__file__).resolve().parent / "helm" / "kinstream" / "files"
#: Placeholders for the prefix of the topics and for the name of an agent.
PREFIX: Final = "{prefix}"
AGENT: Final = "{agent}"
#: Placeholder for the topic of a source, which is not ours.
SOURCE: Final = "{source}"
#: Placeholder for the start of the names of groups, which depends on the prefix.
GROUPS: Final = "{groups}"


def topics() -> dict[str, Any]:
    """The catalogue: each topic's configuration with three replicas or more, and with fewer."""
    return {
        "topics": [
            {
                "role": topic.role,
                "replicated": topic.config(replication=3),
                "single": topic.config(replication=1),
            }
            for topic in CATALOGUE
        ]
    }


def roles() -> dict[str, Any]:
    """The rights of each role, as `spec.authorization.acls` of a KafkaUser; `source` are those on a source's topic."""
    return {
        "roles": {
            name: {
                "agent": role.agent,
                "acls": _acls(role, ()),
                "source": [acl for acl in _acls(role, (SOURCE,)) if acl["resource"]["name"] == SOURCE],
            }
            for name, role in ROLES.items()
        }
    }


def _acls(role: Role, sources: Iterable[str]) -> list[dict[str, Any]]:
    grants = role.grants(PREFIX, AGENT if role.agent else None, sources)
    return [_of_any_prefix(acl) for acl in as_json(grants)]


def _of_any_prefix(acl: dict[str, Any]) -> dict[str, Any]:
    resource = acl["resource"]
    if resource["type"] != "group":
        return acl
    return acl | {"resource": resource | {"name": GROUPS + resource["name"].removeprefix(start_of(PREFIX))}}


def made() -> dict[Path, str]:
    """The text of every file."""
    contents = {"topics.json": topics(), "roles.json": roles()}
    return {FOLDER / name: json.dumps(content, indent=2) + "\n" for name, content in contents.items()}


def main(arguments: list[str]) -> int:
    """Write; with `--check` compare instead, and return 1 if a file differs."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m deploy.strimzi [--check]", file=sys.stderr)
        return 2
    status = 0
    for path, text in made().items():
        if not arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path}: differs from the code; run python -m deploy.strimzi", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
