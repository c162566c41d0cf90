"""A failpoint acts at the hit that it names, and a name that does not exist is an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from kinstream.streams import failpoints
from kinstream.streams.errors import SettingsError

PLACE = "checkpoint.before-manifest"


def run(specification: str, hits: int = 3) -> subprocess.Popen[bytes]:
    program = (
        "from kinstream.streams import failpoints\n"
        f"for n in range({hits}): failpoints.hit({PLACE!r}); print(n, flush=True)"
    )
    environment = os.environ | {failpoints.VARIABLE: specification, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=pipe, stderr=pipe)


def test_kill_takes_effect_at_the_hit_it_names() -> None:
    process = run(f"{PLACE}=kill@3")
    out, _ = process.communicate()
    assert (process.returncode, out.split()) == (-signal.SIGKILL, [b"0", b"1"])


def test_exit_ends_the_process() -> None:
    process = run(f"checkpoint.during-prune=kill; {PLACE}=exit")
    assert (process.communicate()[0], process.returncode) == (b"", 1)


def test_pause_stops_the_process_until_it_is_continued() -> None:
    process = run(f"{PLACE}=pause@2")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate()
    assert (process.returncode, out.split()) == (0, [b"0", b"1", b"2"])


def test_a_misspelt_environment_ends_the_process_at_the_first_hit() -> None:
    process = run("checkpoint.befor-manifest=kill")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert b"no failpoint has the name 'checkpoint.befor-manifest'" in errors


def test_raise_happens_once_and_the_block_restores_what_was() -> None:
    with failpoints.installed(f"{PLACE}=raise@2"):
        failpoints.hit(PLACE)
        with pytest.raises(RuntimeError, match=PLACE):
            failpoints.hit(PLACE)
        failpoints.hit(PLACE)
    failpoints.hit(PLACE)


@pytest.mark.parametrize(
    "text", ["nowhere=kill", f"{PLACE}=explode", f"{PLACE}=kill@0", f"{PLACE}=kill@x", PLACE]
)
def test_a_wrong_specification_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        failpoints.install(text)


@pytest.mark.parametrize("armed", ["", f"{PLACE}=kill"])
def test_a_misspelt_name_in_the_code_is_refused(armed: str) -> None:
    with failpoints.installed(armed), pytest.raises(SettingsError, match="no failpoint"):
        failpoints.hit("checkpoint.befor-manifest")
