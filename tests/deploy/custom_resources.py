"""What the operators of Prometheus and Strimzi take of the kinds that the chart makes: Kubernetes' schemas lack them.

Only fields that the chart uses are here, so an unknown one is an error. Sources: the custom resource definitions of
Strimzi (kafka.strimzi.io/v1) and of the Prometheus operator (monitoring.coreos.com/v1).
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}


def _object(required: str, optional: str = "", **properties: Schema) -> Schema:
    names = f"{required} {optional}".split()
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": {name: properties.get(name, _TEXT) for name in names},
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


_ACL: Final = _object(
    "resource operations host",
    resource=_object(
        "type name patternType",
        type={"enum": ["topic", "group", "cluster", "transactionalId"]},
        patternType={"enum": ["literal", "prefix"]},
    ),
    operations=_list({"enum": ["All", "Create", "Describe", "DescribeConfigs", "Read", "Write"]}),
)
_SPECS: Final[dict[str, tuple[str, Schema]]] = {
    "KafkaTopic": (
        "kafka.strimzi.io/v1",
        _object(
            "partitions replicas config",
            partitions={"type": "integer", "minimum": 1},
            replicas={"type": "integer", "minimum": 1, "maximum": 32767},
            config=_TEXTS,
        ),
    ),
    "KafkaUser": (
        "kafka.strimzi.io/v1",
        _object(
            "authentication authorization",
            authentication=_object("type", type={"enum": ["tls", "tls-external", "scram-sha-512"]}),
            authorization=_object("type acls", type={"const": "simple"}, acls=_list(_ACL)),
        ),
    ),
    "ServiceMonitor": (
        "monitoring.coreos.com/v1",
        _object(
            "selector endpoints",
            selector=_object("matchLabels", matchLabels=_TEXTS),
            endpoints=_list(
                _object(
                    "port path interval",
                    "relabelings",
                    relabelings=_list(_object("action targetLabel replacement", action={"const": "replace"})),
                )
            ),
        ),
    ),
    "PrometheusRule": (
        "monitoring.coreos.com/v1",
        _object(
            "groups",
            groups=_list(
                _object(
                    "name rules",
                    "interval",
                    rules=_list(
                        _object(
                            "expr", "record alert for labels annotations", labels=_TEXTS, annotations=_TEXTS
                        )
                    ),
                )
            ),
        ),
    ),
}


def schema_of(kind: str) -> Schema | None:
    """The schema of a whole document, or None for a kind of Kubernetes itself."""
    if kind not in _SPECS:
        return None
    version, spec = _SPECS[kind]
    metadata = _object("name labels", "annotations", labels=_TEXTS, annotations=_TEXTS)
    return _object(
        "apiVersion kind metadata spec",
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )
