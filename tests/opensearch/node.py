"""One node of a real OpenSearch: a process on loopback, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.opensearch.jars import bring, missing
from tests.support.processes import until

START_SECONDS: Final = 180.0
_SOURCE: Final = Path(__file__).with_name("TestNode.java")


class OpenSearchNode:
    """A node that runs.

    Parameters
    ----------
    url : where it answers.
    process : of Java.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the node answers, from JSON; lines of JSON are sent for a list."""
        lines = (
            "".join(json.dumps(one) + "\n" for one in body) if isinstance(body, list) else json.dumps(body)
        )
        kind = {"content-type": "application/x-ndjson" if isinstance(body, list) else "application/json"}
        data = None if body is None else lines.encode()
        request = urllib.request.Request(f"{self.url}{path}", data, kind, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def fill(self, index: str, fields: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
        """An index of one shard with documents by id; one of that name is replaced.

        Parameters
        ----------
        fields : the mapping of each.
        """
        self.ask("DELETE", f"/{index}?ignore_unavailable=true")
        settings = {"index": {"knn": True, "number_of_shards": 1, "number_of_replicas": 0}}
        self.ask("PUT", f"/{index}", {"settings": settings, "mappings": {"properties": dict(fields)}})
        names = list(rows)
        for first in range(0, len(names), 500):
            lines: list[Any] = []
            for name in names[first : first + 500]:
                lines += [{"index": {"_id": name}}, rows[name]]
            told = self.ask("POST", f"/{index}/_bulk", lines)
            assert not told["errors"], told
        self.ask("POST", f"/{index}/_refresh")


@contextmanager
def opensearch() -> Iterator[OpenSearchNode]:
    """A node, which is gone afterwards with its folder. Skips the test where Java or Maven is missing."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="kinstream-os-", ignore_cleanup_errors=True) as name:
        folder, jars = Path(name), bring()
        # The node writes its ports there.
        (folder / "logs").mkdir()
        log = folder / "node.log"
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        command = ["java", *small, "-cp", f"{jars}/*", str(_SOURCE), str(folder)]
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stream, stderr=stream)
        try:
            ports = folder / "logs" / "http.ports"

            def started() -> bool:
                if process.poll() is not None:
                    raise RuntimeError(f"OpenSearch did not start: {log.read_text(errors='replace')[-2000:]}")
                return ports.exists() and bool(ports.read_text().strip())

            until(started, "OpenSearch has a port", START_SECONDS)
            node = OpenSearchNode(f"http://{ports.read_text().split()[0]}", process)
            until(lambda: _answers(node), "OpenSearch answers", START_SECONDS)
            yield node
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _answers(node: OpenSearchNode) -> bool:
    try:
        return bool(node.ask("GET", "/_cluster/health")["status"] in ("green", "yellow"))
    except (OSError, urllib.error.URLError):
        return False
