"""Translates errors of aiokafka that come from login or permissions."""

from __future__ import annotations

import ssl

from kinstream.streams.errors import KinstreamError, LoginRefused
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied, diagnose, refused_login
from kinstream.streams.secrets import hide
from kinstream.streams.settings import KafkaSettings

#: Seconds for the attempt of the other library, which ends as soon as it is refused.
_SECONDS = 5.0


def explained(kafka: KafkaSettings, error: BaseException) -> KinstreamError | None:
    """The meaning of an aiokafka error about login or permission. Its chain of causes is searched."""
    from aiokafka import errors

    seen: BaseException | None = error
    while seen is not None:
        match seen:
            case KinstreamError():
                return seen
            case errors.TopicAuthorizationFailedError():
                return denied(kafka, "READ", f"topic {_named(seen)}")
            case errors.GroupAuthorizationFailedError():
                return denied(kafka, "READ", f"group {_named(seen)}")
            case errors.SaslAuthenticationFailed() | errors.UnsupportedSaslMechanismError():
                return refused_login(kafka, f"{type(seen).__name__} {hide(str(seen))}")
            case errors.KafkaConnectionError() | ssl.SSLError():
                return diagnose(kafka) or _asked_again(kafka)
        seen = seen.__cause__ or seen.__context__
    return None


def _named(error: BaseException) -> str:
    found = error.args[0] if error.args else "unknown"
    return (
        ", ".join(sorted(map(str, found))) if isinstance(found, (set, frozenset, list, tuple)) else str(found)
    )


def _asked_again(kafka: KafkaSettings) -> LoginRefused | None:
    """Try librdkafka with the same settings: unlike aiokafka, it reports a wrong password."""
    cluster = Cluster(kafka)
    try:
        cluster.wait(_SECONDS)
    except LoginRefused as error:
        return error
    except KinstreamError:
        return None
    finally:
        cluster.close()
    return None
