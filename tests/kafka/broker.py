"""Apache Kafka in KRaft mode: one process on loopback, in a folder of its own."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.jars import ARCHIVE, bring

START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 20.0
_PRIORITY: Final = -10

_NETWORK: Final = """\
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{more_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more_advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT
"""
# A killed broker is let in again only when its old session has run out: 9 s, were it not set here.
# A quarter of what a broker without work takes are the controller's empty records and more heartbeats.
# The cleaner's and the retention's clocks are fast, so that tests can wait for what they do.
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
log.dirs={data}
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=1000
metadata.max.idle.interval.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
delete.topic.enable=true
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=500
log.cleaner.min.cleanable.ratio=0.01
log.cleaner.dedupe.buffer.size=8388608
"""


def _prefer(pid: int) -> None:
    """Let a process run before the others, where this user may say so.

    Tests start dozens of processes at once. A broker that is one of them answers after seconds, as none in use does.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _PRIORITY)
    # Where sessions share the processors, this is what counts (sched(7), autogroup).
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_PRIORITY))


class KafkaBroker:
    """One broker. `kill` keeps the log, and `start` after it uses the same ports and folder.

    Parameters
    ----------
    folder : for settings, log and data.
    advertised_port : a second listener, advertised at this port: that of a proxy in front of `proxied_port`.
    extra : further broker properties.
    """

    def __init__(
        self, folder: Path, *, advertised_port: int | None = None, extra: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._reserved = [reserve_port() for _ in range(3)]
        self.port, self._controller, self.proxied_port = (int(one.getsockname()[1]) for one in self._reserved)
        self._advertised_port = advertised_port
        self._extra = dict(extra or {})
        self._process: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            self._release_ports()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    # ---- life ---------------------------------------------------------------------------------------------------

    def start(self) -> KafkaBroker:
        """Start, and return once a client can list topics.

        Raises
        ------
        RuntimeError : it runs already, or does not answer in time; with the end of its log.
        """
        if self._process is not None:
            raise RuntimeError("the broker runs already")
        settings = self.folder / "server.properties"
        settings.write_text(self._properties())
        if not (self.folder / "data").exists():
            # Like Kafka's own, an id that begins with no dash: the tool would take it for an option.
            cluster = "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
            options = ["-t", cluster, "-c", str(settings), *self._format_options()]
            self._java("kafka.tools.StorageTool", "format", *options, heap="128m")
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(settings), heap="512m"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _prefer(self._process.pid)
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def _properties(self) -> str:
        common = _PROPERTIES.format(data=self.folder / "data")
        return self._network() + common + "".join(f"{name}={value}\n" for name, value in self._extra.items())

    def _network(self) -> str:
        """Listeners, and what is spoken on them."""
        proxied = self._advertised_port is not None
        return _NETWORK.format(
            port=self.port,
            controller=self._controller,
            more_listeners=f",PROXIED://127.0.0.1:{self.proxied_port}" if proxied else "",
            more_advertised=f",PROXIED://127.0.0.1:{self._advertised_port}" if proxied else "",
        )

    def _format_options(self) -> list[str]:
        """What the first start has besides."""
        return []

    def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
        tuning = [
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        if ARCHIVE.exists():
            tuning.append(f"-XX:SharedArchiveFile={ARCHIVE}")
        return ["java", f"-Xmx{heap}", *tuning, "-cp", f"{bring()}/*", main, *arguments]

    def _java(self, main: str, *arguments: str, heap: str) -> None:
        done = subprocess.run(
            self._command(main, *arguments, heap=heap),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main}: {done.stdout[-1000:]}{done.stderr[-1000:]}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + START_SECONDS
        admin = self.admin()
        while process.poll() is None and time.monotonic() < limit:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=0.5).brokers:
                    return
        log = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the broker did not start: {log}")

    def kill(self) -> None:
        """SIGKILL, paused or not; the log is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop in order; kill at the deadline."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            self.kill()

    def restart(self) -> None:
        """Stop if it runs, and start on the same ports and folder."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self._process is not None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker does not run"
        return self._process

    def _release_ports(self) -> None:
        for one in self._reserved:
            one.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._release_ports()

    # ---- topics -------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """A new client, which says nothing when the broker is away. Hold it until its futures are done."""
        quiet = {"log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 200}
        return AdminClient({"bootstrap.servers": self.bootstrap, **self._login(), **quiet})  # type: ignore[dict-item]

    def _login(self) -> dict[str, str]:
        """What the administrator's client says to be let in."""
        return {}

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, and return once every partition has a leader. `retention_ms="1"` sets retention.ms."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()
        admin.create_topics([new])[name].result(ANSWER_SECONDS)
        self.wait_for_leaders(name, partitions)

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Wait until so many partitions of a topic have a leader."""
        admin = self.admin()

        def led() -> bool:
            try:
                topic = admin.list_topics(timeout=5).topics.get(name)
            except KafkaException:
                return False
            return topic is not None and sum(p.leader >= 0 for p in topic.partitions.values()) == partitions

        _until(led, f"topic {name} does not appear")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and return once it is gone."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(ANSWER_SECONDS)
        _until(lambda: name not in admin.list_topics(timeout=5).topics, f"topic {name} stays")

    def delete_records_before(self, topic: str, partition: int, offset: int) -> None:
        """Let the partition's log begin at `offset`."""
        place = TopicPartition(topic, partition, offset)
        admin = self.admin()
        admin.delete_records([place])[place].result(ANSWER_SECONDS)


def _until(condition: Callable[[], bool], failure: str) -> None:
    limit = time.monotonic() + ANSWER_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(failure)
        time.sleep(0.05)


def reserve_port() -> socket.socket:
    """A loopback port that nobody else is given while this socket is open, and that a broker may listen on.

    On Linux a socket that is bound and does not listen keeps the port out of the system's choice, also while
    the broker is dead, and SO_REUSEADDR, set after the bind, lets the broker share it. Elsewhere the caller
    has to close it first.
    """
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return reserved
