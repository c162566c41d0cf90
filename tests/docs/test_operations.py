"""The commands of the operations guide are tried: a store is copied, lost and brought back, and its agent goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import ROOT, blocks
from tests.golden.write_agents import CHECKPOINTS, LOG, config, log_of, specs
from tests.support.pipeline import Agent

PAGE = ROOT / "docs" / "operations.md"


def commands(name: str) -> str:
    """The shell example below the mark of that name."""
    (found,) = [block.text for block in blocks(PAGE, "sh") if block.before == f"<!-- test: {name} -->"]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A live store, with a settings file beside it."""
    folder = tmp_path / "checkpoints"
    shutil.copytree(CHECKPOINTS, folder)
    (tmp_path / "kinstream.toml").write_text(
        f'[checkpoints]\nurl = "{folder}"\n'
        '[builders.random-triplets]\nkind = "random-triplets"\n'
        '[learners.opml]\nkind = "opml"\nfrom = ["random-triplets"]\n',
        encoding="utf-8",
    )
    return folder


def run(store: Path, name: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CHECKPOINTS": str(store),
        "BACKUP": str(store.parent / "backup"),
    }
    return subprocess.run(
        ["bash", "-euc", commands(name)],
        cwd=store.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def done(store: Path, name: str) -> str:
    ended = run(store, name)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_store_is_copied_lost_and_brought_back(store: Path) -> None:
    listed = [line.split()[:2] for line in done(store, "backup").splitlines()]
    assert [row for row in listed if row[1:] == ["opml"]] == [["labelled", "opml"], ["reset", "opml"]]
    backup = store.parent / "backup"
    assert "whole" in done(store, "verify")
    for file in (store / "learner-opml").rglob("*.safetensors"):
        file.write_bytes(b"lost")
    done(store, "restore")
    done(store, "export")
    with np.load(backup / "labelled.npz") as exported:
        assert any(exported[name].shape == (4, 4) for name in exported.files)
    ended = []
    for root in (store, store.parent / "fresh"):
        spec = next(s for s in specs(config(root)) if s.application == "learner-opml")
        agent = Agent(spec, config(root), log_of(LOG), root)
        ended.append((agent.runners[0].machine.next_offset, agent))
        agent.run()
    assert ended[0][0] > ended[1][0] == 0
    mine, theirs = (agent.states() for _, agent in ended)
    assert mine.keys() == theirs.keys()
    # Bits are promised for equal versions, and the golden checkpoint may be of others.
    for space, state in theirs.items():
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_allclose(np.asarray(mine[space][name]), value, rtol=1e-4, atol=1e-6)


def test_a_damaged_copy_is_told(store: Path) -> None:
    done(store, "backup")
    for file in (store.parent / "backup" / "learner-opml").rglob("spaces/labelled*"):
        file.write_bytes(b"rotten")
    ended = run(store, "verify")
    assert ended.returncode == 1
    assert "the file is damaged" in ended.stdout


def test_a_copy_that_was_taken_meanwhile_falls_back_to_the_checkpoint_before(store: Path) -> None:
    spec = next(s for s in specs(config(store)) if s.application == "learner-opml")
    agent = Agent(spec, config(store), log_of(LOG), store)
    half = agent.runners[0].machine.next_offset
    agent.step(0, 20)
    agent.runners[0].checkpoint()
    newest = max((store / "learner-opml").rglob("*.manifest.json"))
    # The copy has caught the manifest and not one of the files that were written before it.
    named = json.loads(newest.read_text())["content"]["spaces"]["labelled"]["path"]
    (newest.parent / named).unlink()
    again = Agent(spec, config(store), log_of(LOG), store)
    assert again.runners[0].machine.next_offset == half
