"""`kinstream up`: it believes its own agents alone, has a folder to itself, and ends at once where one refuses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kinstream.cli.local.folder_lock import FolderLock, temporary_folder
from kinstream.cli.local.system import LocalSystem, Process, ready_agents
from kinstream.streams.errors import CannotListen, FolderInUse
from kinstream.streams.settings import Settings
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

ROOT = Path(__file__).resolve().parents[2]
TOML = """
[builders.one-pass]
kind = "one-pass"

[learners.opml]
kind = "opml"
from = ["one-pass"]
"""
AGENTS = ("builder-one-pass", "learner-opml", "metrics")
SECONDS = 240.0


class Page:
    """Another program's page on a port of its own: it answers every question with `answer`, and all is well."""

    def __init__(self, answer: Any) -> None:
        body = json.dumps(answer).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def stranger() -> Iterator[Page]:
    page = Page({"status": "ok", "checks": []})
    yield page
    page.close()


def begin(folder: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    """A command of ours in a folder, with the output of both kinds in one pipe."""
    (folder / "kinstream.toml").write_text(TOML, encoding="utf-8")
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("KAFKA_", "KINSTREAM_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "kinstream.cli.main", *command],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Status and output at the end; one that does not end is killed with all of its children."""
    family = [psutil.Process(process.pid)]
    try:
        output = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [*family[0].children(recursive=True), *family]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        raise AssertionError(f"it goes on: {process.communicate()[0]}") from None
    return process.returncode, output


def test_a_port_that_is_taken_ends_up_at_once_and_starts_nothing(tmp_path: Path, stranger: Page) -> None:
    status, output = ended(begin(tmp_path, "--set", f"worker.http_port={stranger.port}", "up"))
    assert status == 3
    assert f"127.0.0.1 port {stranger.port}: another process has this port" in output
    assert "worker.http_port" in output and "ready" not in output and "Traceback" not in output
    assert not list(tmp_path.glob(".kinstream/logs/*.log"))


def test_a_worker_alone_refuses_a_port_that_is_taken_and_is_not_started_again(
    tmp_path: Path, stranger: Page
) -> None:
    option = f"worker.http_port={stranger.port}"
    status, output = ended(
        begin(tmp_path, "--set", option, "worker", "metrics", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9")
    )
    assert status == 3
    assert output == (
        f"kinstream: cannot listen on 127.0.0.1 port {stranger.port}: another process has this port; stop it, or "
        "change worker.http_port (0 stands for any free one)\n"
    )


def test_from_start_goes_with_a_new_generation(tmp_path: Path) -> None:
    status, output = ended(begin(tmp_path, "up", "--from-start"))
    assert status == 2 and output == "kinstream: --from-start goes with --new-generation\n"
    assert not (tmp_path / ".kinstream").exists()


@pytest.mark.long
def test_an_agent_that_refuses_ends_up_with_status_3(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    refused = ("--set", "learners.opml.generation=7", "up")
    status, output = ended(begin(tmp_path, *refused, TMPDIR=str(tmp_path / "temporary")))
    assert status == 3
    assert "worker ended with status 3" in output and "learner-opml" in output and "generation 7" in output
    # The checkpoints of the embedded broker's log end with it.
    assert f"KINSTREAM_CHECKPOINTS__URL={tmp_path}/temporary/kinstream-checkpoints-" in output
    assert not list((tmp_path / "temporary").glob("kinstream-checkpoints-*"))


@pytest.mark.long
def test_a_service_with_wrong_settings_ends_up_with_status_2(tmp_path: Path) -> None:
    spaces = 'serve.spaces={"s": {"learner": "opml"}}'
    status, output = ended(begin(tmp_path, "--set", spaces, "--set", "serve.clients_file=missing", "up"))
    assert status == 2
    assert "serve ended with status 2" in output and "clients_file: missing: No such file" in output


@pytest.mark.parametrize("together", [True, False])
def test_readyz_names_the_agents_and_their_process_and_a_second_up_is_refused_by_the_first_ones_id(
    tmp_path: Path, together: bool
) -> None:
    first = begin(tmp_path, *([] if together else ["--set", "worker.together=false"]), "up")
    try:
        pages: dict[str, str] = {}
        assert first.stdout is not None
        reader = threading.Thread(
            target=lambda: [
                pages.update({line.partition(":")[0]: line.split()[-1]})
                for line in first.stdout or ()
                if ": ready after" in line
            ],
            daemon=True,
        )
        reader.start()
        until(lambda: set(pages) == set(AGENTS) or first.poll() is not None, "the agents are not ready")
        assert first.poll() is None
        ours = {one.pid: one for one in psutil.Process(first.pid).children(recursive=True)}
        # `up` itself supervises them.
        assert len(ours) == len(set(pages.values())) == (1 if together else len(AGENTS))
        for name, page in pages.items():
            with urllib.request.urlopen(page.replace("/metrics", "/readyz"), timeout=10) as answer:
                told = json.loads(answer.read())
            agents = told["agents"] if together else [told]
            assert [one["generation"] for one in agents if one["agent"] == name] == [1]
            assert len(agents) == (len(AGENTS) if together else 1)
            assert ours[told["pid"]].ppid() == told["supervisor"] == first.pid

        logs = {path: path.read_text() for path in tmp_path.glob(".kinstream/logs/*.log")}
        for command in (("up",), ("demo",), ("demo", "clicks")):
            status, output = ended(begin(tmp_path, *command))
            assert status == 3, output
            assert f"(process {first.pid})" in output and "Traceback" not in output
        assert all(path.read_text().startswith(text) for path, text in logs.items()), "logs were overwritten"
    finally:
        with contextlib.suppress(ProcessLookupError):
            first.send_signal(signal.SIGTERM)
        first.wait(SECONDS)
    assert first.returncode == 0
    assert not [one for one in ours.values() if one.is_running()]
    FolderLock(tmp_path / ".kinstream" / "logs").release()


def test_what_is_supervised_ends_with_its_supervisor_and_is_started_again_by_it(tmp_path: Path) -> None:
    first = begin(tmp_path, "up")
    ours: list[psutil.Process] = []

    def workers() -> list[psutil.Process]:
        found = psutil.Process(first.pid).children(recursive=True)
        ours.extend(one for one in found if one not in ours)
        return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]

    try:
        assert first.stdout is not None
        said: list[str] = []
        threading.Thread(target=lambda: said.extend(first.stdout or ()), daemon=True).start()
        until(partial(all_ready, said), "the agents are ready")
        (worker,) = workers()
        worker.kill()
        until(lambda: any("worker ended with status -9" in line for line in said), "it is seen")
        until(lambda: [one.pid for one in workers()] not in ([], [worker.pid]), "it is started again")
    finally:
        first.kill()
        first.wait(SECONDS)
    until(lambda: not any(one.is_running() for one in ours), "its worker ends with it")


@pytest.mark.kafka
@pytest.mark.long
def test_a_new_generation_begins_once_however_often_the_worker_is_started(
    tmp_path: Path, kafka: KafkaBroker
) -> None:
    topics = [
        f"topics.prefix={tmp_path.name.replace('_', '-')}",
        "topics.partitions=2",
        "topics.replication=1",
    ]
    given = [word for one in topics for word in ("--set", one)]
    servers = {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    status, output = ended(begin(tmp_path, *given, "topics", "create", **servers))
    assert status == 0, output
    for command, generation in ((["up"], 1), (["up", "--new-generation"], 2)):
        process = begin(tmp_path, *given, *command, **servers)
        said: list[str] = []
        reader = threading.Thread(target=partial(said.extend, process.stdout or ()), daemon=True)
        reader.start()
        try:
            until(partial(all_ready, said), "all are ready")
            page = next(line for line in said if "ready after" in line).split()[-1]
            page = page.replace("/metrics", "/readyz")
            (worker,) = psutil.Process(process.pid).children()
            worker.kill()
            until(partial(answers_anew, page, worker.pid), "it is back")
            with urllib.request.urlopen(page, timeout=10) as answer:
                agents = json.loads(answer.read())["agents"]
            assert {one["agent"]: one["generation"] for one in agents} == dict.fromkeys(AGENTS, generation)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)
        reader.join(SECONDS)
        assert process.returncode == 0, said
        begun = [line for line in said if line.endswith(f": generation {generation} begins\n")]
        assert len(begun) == (0 if generation == 1 else len(AGENTS)), said


def all_ready(said: list[str]) -> bool:
    """Whether `up` has said it of every agent."""
    return sum("ready after" in line for line in said) == len(AGENTS)


def answers_anew(page: str, before: int) -> bool:
    """Whether another process than `before` answers that all are ready."""
    with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=5) as answer:
        return bool(json.loads(answer.read())["agents"][0]["pid"] != before)
    return False


def test_a_process_that_is_killed_leaves_no_lock_behind(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from kinstream.cli.local.folder_lock import FolderLock\n"
        "lock = FolderLock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "logs"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match=rf"process {holder.pid}\)"):
            FolderLock(folder)
        holder.kill()
        holder.wait(SECONDS)
    with FolderLock(folder), pytest.raises(FolderInUse, match=f"process {os.getpid()}"):
        FolderLock(folder)
    with FolderLock(folder):
        assert (folder / "up.lock").read_text().strip() == str(os.getpid())


def test_the_page_of_another_agent_or_process_is_not_believed(tmp_path: Path) -> None:
    popen = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    own = {
        "status": "ok",
        "agent": "metrics",
        "generation": 1,
        "pid": 1,
        "supervisor": popen.pid,
        "checks": [],
    }
    try:
        for answer, believed in (
            (own, True),
            (own | {"agent": "learner-opml"}, False),
            (own | {"supervisor": popen.pid + 1}, False),
            ({"status": "ok", "checks": []}, False),
            (["ok"], False),
        ):
            page = Page(answer)
            process = Process("metrics", popen, tmp_path / "log", page.port, agents=frozenset({"metrics"}))
            assert ready_agents(process) == (process.agents if believed else frozenset())
            page.close()
    finally:
        popen.communicate()


@pytest.mark.parametrize("own, seen", [(None, "2"), ("5", "5")])
def test_processes_have_few_heaps_unless_the_user_says_otherwise(
    own: str | None, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if own is not None:
        monkeypatch.setenv("MALLOC_ARENA_MAX", own)
    started: list[str] = []

    def ended(*_: object, env: dict[str, str], **__: object) -> SimpleNamespace:
        started.append(env["MALLOC_ARENA_MAX"])
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr("kinstream.cli.local.system.Supervised", ended)
    system = LocalSystem(Settings(), [], {}, tmp_path)
    system.start("worker", ["worker", "all"])
    system.stop()
    assert started == [seen]


def test_ports_are_held_from_before_the_start_until_the_end(tmp_path: Path, stranger: Page) -> None:
    found = Settings.model_validate({"builders": {"b": {"kind": "one-pass"}}, "worker": {"together": False}})
    system = LocalSystem(found, [], {}, tmp_path)
    system.reserve()
    ports = [page.getsockname()[1] for page in system._sockets.values()]
    assert len(set(ports)) == 2
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", ports[0]))
    system.stop()
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))
    taken = found.model_copy(update={"worker": found.worker.model_copy(update={"http_port": stranger.port})})
    with pytest.raises(CannotListen, match=f"port {stranger.port}"):
        LocalSystem(taken, [], {}, tmp_path).reserve()


def test_a_temporary_folder_of_a_killed_process_goes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "mine-of-somebody").mkdir()
    (tmp_path / "mine-killed").mkdir()
    FolderLock(tmp_path / "mine-killed").release()
    with temporary_folder("mine-") as first:
        assert not (tmp_path / "mine-killed").exists()
        with temporary_folder("mine-") as second:
            assert {one.name for one in tmp_path.iterdir()} == {
                "mine-of-somebody",
                Path(first).name,
                Path(second).name,
            }
    assert [one.name for one in tmp_path.iterdir()] == ["mine-of-somebody"]
