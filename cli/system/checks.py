"""Checks of everything that a deployment needs, each with the command or the change that mends it."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from kinstream.cli.shared.agents import agent_spec
from kinstream.cli.system.check_result import Finding, refusable
from kinstream.cli.system.service_checks import lost_findings, service_findings, unserved_findings
from kinstream.cli.system.store_checks import checkpoint_store, vector_stores
from kinstream.producers.sources.values.partition_time import MAX_AHEAD_MS
from kinstream.streams.agents.generations.birth import compare, read_birth
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.open_generation import look_for_source, view_of
from kinstream.streams.errors import KinstreamError
from kinstream.streams.extras import INDEX, SERVE, WORKER, installed
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.rights.access import check_role
from kinstream.streams.kafka.topic_check import differences
from kinstream.streams.operations.checkpoints import SINGLE, Agent, agents
from kinstream.streams.settings import Settings
from kinstream.streams.topics import replication_warning

#: Seconds that brokers may take to answer, and that their clock may be ahead of this machine's.
ANSWER_SECONDS: Final = 10.0
AHEAD_SECONDS: Final = 5.0
#: Packages of the vector stores.
_STORES: Final = {"pgvector": "psycopg", "qdrant": "qdrant_client", "opensearch": "urllib3"}
_STAMPS: Final = "message.timestamp.type"
_BOUND: Final = "message.timestamp.after.max.ms"
_SHOWN: Final = ("kinstream", "confluent-kafka", "numpy")


def findings(settings: Settings) -> Iterator[Finding]:
    """All checks in the order in which their faults are best mended. What needs brokers ends at the first refusal."""
    yield from packages(settings)
    yield checkpoint_store(settings)
    yield from vector_stores(settings)
    yield from unserved_findings(settings)
    yield from lost_findings(settings)
    if not settings.kafka.bootstrap_servers:
        text = "no address is set: `kinstream up` uses the embedded broker, which forgets everything"
        yield Finding("brokers", False, text, "set KAFKA_BOOTSTRAP_SERVERS or kafka.bootstrap_servers")
        return
    try:
        cluster = Cluster(settings.kafka)
    except KinstreamError as error:
        yield Finding("brokers", False, str(error))
        return
    try:
        found = _brokers(cluster, settings)
        yield found
        if not found.good:
            return
        yield from _topics(cluster, settings)
        yield from _clock(cluster, settings)
        for agent in agents(settings):
            yield from _agent(cluster, settings, agent)
        yield from service_findings(settings, cluster)
    finally:
        cluster.close()


def packages(settings: Settings) -> Iterator[Finding]:
    """Versions, and for each part of the settings the packages that it needs."""
    versions = ", ".join(f"{name} {version(name)}" for name in _SHOWN)
    yield Finding("versions", True, f"Python {platform.python_version()}, {versions}")
    needed: dict[str, tuple[str, ...]] = {}
    if len(agents(settings)) > 1:  # More than the metrics agent.
        needed["worker"] = WORKER
    if settings.serve.spaces:
        needed["serve"] = SERVE + (INDEX if settings.serve.indexed else ())
    if any(space.index.startswith("faiss") for space in settings.serve.indexed.values()):
        needed["faiss"] = ("faiss",)
    if settings.traces.endpoint:
        needed["otel"] = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    stores = [space.backend for space in settings.serve.stored.values()]
    stores += [sink.store for sink in settings.sinks.values()]
    needed |= {name: (_STORES[name],) for name in stores if name in _STORES}
    for extra, names in needed.items():
        missing = [name for name in names if not installed(name)]
        text = f"{', '.join(missing)} missing" if missing else "installed"
        mend = f"pip install 'kinstream[{extra}]'" if missing else ""
        yield Finding(f"packages of {extra}", not missing, text, mend)


def _brokers(cluster: Cluster, settings: Settings) -> Finding:
    try:
        cluster.wait(ANSWER_SECONDS)
        view = cluster.view([])
    except KinstreamError as error:
        return Finding("brokers", False, str(error))
    name = f"cluster {view.cluster_id}" if view.cluster_id else "the embedded broker"
    return Finding("brokers", True, f"{view.brokers} at {settings.kafka.bootstrap_servers}, {name}")


def _topics(cluster: Cluster, settings: Settings) -> Iterator[Finding]:
    try:
        found = differences(cluster, settings)
        warning = replication_warning(cluster.view([]).brokers, settings.topics.replication)
    except KinstreamError as error:
        yield Finding("topics", False, str(error))
        return
    for one in found:
        yield Finding("topics", False, one.text, one.mend)
    if not found and cluster.view([]).cluster_id is None:
        yield Finding(
            "topics", True, "the embedded broker makes them; it has no settings of topics to compare"
        )
    elif not found:
        yield Finding("topics", True, "as the catalogue has them" + (f"; {warning}" if warning else ""))


def _clock(cluster: Cluster, settings: Settings) -> Iterator[Finding]:
    """Whether an event has a later time than now: brokers write it when an event comes."""
    topic = settings.topic("events")
    limit = int((time.time() + AHEAD_SECONDS) * 1000)
    try:
        partitions = range(cluster.view([topic]).topics[topic].partitions)
        ahead = any(cluster.offset_at(topic, one, limit) is not None for one in partitions)
        compared = ahead or any(cluster.offset_at(topic, one, 0) is not None for one in partitions)
    except KeyError:
        # The topic is missing, which is reported.
        return
    except KinstreamError as error:
        yield Finding("clocks", False, str(error))
        return
    if ahead:
        text = f"an event of {topic} was written over {AHEAD_SECONDS:.0f} s after this machine's time"
        yield Finding("clocks", False, text, "synchronise the clocks of brokers and of this machine (NTP)")
    elif compared:
        text = f"no broker wrote an event of {topic} over {AHEAD_SECONDS:.0f} s ahead of this machine's time"
        yield Finding("clocks", True, text)
    else:
        yield Finding("clocks", True, f"not compared: {topic} has no event yet")


def _agent(cluster: Cluster, settings: Settings, agent: Agent) -> Iterator[Finding]:
    """Permissions of an agent, and whether its newest generation fits the settings and the cluster."""

    def checked() -> str:
        name = None if agent.role in SINGLE else agent.name
        spec = agent_spec(settings, agent.role, name)
        newest = newest_generation(settings, agent.application)
        number = agent.pinned or newest
        groups = [spec.group(one) for one in sorted({number or 1, (newest or 0) + 1})]
        check_role(cluster, settings, agent.role, name, groups, spec.also_writes)
        look_for_source(spec, cluster)
        birth = None if number is None else read_birth(settings.checkpoints.url, agent.application, number)
        times = _times(cluster, settings, agent)
        if birth is None:
            return f"may begin: kinstream up, or {agent.command} --create{times}"
        compare(birth, view_of(spec, settings, cluster), spec.command)
        return f"generation {number} fits the settings and the topics{times}"

    yield refusable(agent.application, checked)


def _times(cluster: Cluster, settings: Settings, agent: Agent) -> str:
    """What is said of a topic of UBI in which writers whose clocks are ahead close the lists of others."""
    section = settings.sources.get(agent.name) if agent.role == "source" else None
    if section is None or section.preset is None:
        return ""
    try:
        found = cluster.config_of(section.topic)
    except KinstreamError:
        # It is another system's topic: the right to read its settings is not needed.
        return ""
    bound = int(found.get(_BOUND) or MAX_AHEAD_MS + 1)
    if found.get(_STAMPS) != "CreateTime" or bound <= MAX_AHEAD_MS:
        return ""
    return (
        f"; the writers of {section.topic} stamp its records ({_STAMPS}=CreateTime), and lists close by these times: "
        f"let brokers stamp them ({_STAMPS}=LogAppendTime), or refuse what is ahead ({_BOUND}={MAX_AHEAD_MS})"
    )
