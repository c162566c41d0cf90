"""The page on a learner of one's own is walked: a package is installed, checked, and learns live on a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kinstream.learners import registry
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.values import Outcome
from kinstream.streams.settings import KafkaSettings
from tests.docs.pages import ROOT, blocks
from tests.docs.terminals import Walk, installed_as_told, walk
from tests.support.machine_code import take_machine_code

PAGE = ROOT / "docs" / "own-learner.md"


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_learner_of_another_package_is_installed_checked_and_learns_live(tmp_path: Path) -> None:
    """In a new environment that has the extras which the page names, and no others."""
    environment = installed_as_told(PAGE, tmp_path)
    # The tutorial is walked as a newcomer walks it; who reads this page has compiled the kernels before.
    (package,) = environment.glob("lib/*/site-packages/kinstream")
    take_machine_code(package)
    with walk(PAGE, tmp_path, environment=environment) as page:
        page.write_files()
        assert "pip install ./weights-learner\n" in [block.text for block in blocks(PAGE, "sh")]
        page.done("pip install -q --disable-pip-version-check ./weights-learner")
        assert page.done(page.commands("checks")) == "all checks pass\n"
        page.start_agents("up", ready=3)
        produce, models, export = page.commands("use").splitlines()
        page.done(produce)
        page.until(lambda: settled(page, models), "a checkpoint covers all that was sent")
        page.done(export)
        with np.load(tmp_path / "weights.npz") as exported:
            learned = exported["map"]
        assert learned.shape == (64, 64) and not np.allclose(np.diag(learned), 1.0)
        total = sum(outcome.counts.utilised for outcome in outcomes(page) if outcome.learner == "weights")
        assert total > 100


def settled(page: Walk, models: str) -> bool:
    listed = page.run(models)
    return listed.returncode == 0 and "weights" in listed.stdout and "digits" in listed.stdout


def outcomes(page: Walk) -> list[Outcome]:
    """What the learner reported to the broker of the page."""
    kafka = KafkaSettings(bootstrap_servers=page.environment["KAFKA_BOOTSTRAP_SERVERS"])
    topic = "kinstream.outcomes"
    cluster = Cluster(kafka)
    try:
        found = [decode_outcome(message.value) for message in read_range(kafka, topic, ends(cluster, topic))]
    finally:
        cluster.close()
    return [record for record in found if isinstance(record, Outcome)]


# ---- faults of other packages -----------------------------------------------------------------------------------

SOUND = """
import numpy as np
from kinstream import TripletRule

class Sound(TripletRule):
    algorithm = "sound/1"
    def begin(self, d): return np.ones(d)
    def map_of(self, parameters): return np.diag(parameters)
    def step(self, parameters, near, far): return None

class Refusing(Sound):
    def __init__(self): raise ZeroDivisionError("by its constructor")

class Nothing:
    pass

number = 3
"""
#: Kind -> entry point, and what is reported of it.
FAULTS = {
    "sound": ("others:Sound", None),
    "gone": (
        "no_such_module:Gone",
        "of others 2.5 cannot be imported from no_such_module:Gone: ModuleNotFoundError",
    ),
    "nameless": ("others:Nameless", "of others 2.5 cannot be imported from others:Nameless: AttributeError"),
    "broken": (
        "broken_module:Broken",
        "of others 2.5 cannot be imported from broken_module:Broken: ValueError: broken",
    ),
    "number": ("others:number", "of others 2.5 is not a class: others:number"),
    "nothing": ("others:Nothing", "of others 2.5 is not a learner: it has no accepts, algorithm, distance"),
    "refusing": ("others:Refusing", "of others 2.5 cannot be made: ZeroDivisionError: by its constructor"),
    "twice": ("others:Sound", "several distributions offer a learner 'twice': others 2.5, rivals 1.0"),
}


def distribution(
    folder: Path, name: str, version: str, offers: dict[str, str], group: str = "kinstream.learners"
) -> None:
    """The record of an installed package with these entry points."""
    record = folder / f"{name}-{version}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{kind} = {value}" for kind, value in offers.items()]
    (record / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A folder with packages of which one learner is sound."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "others.py").write_text(SOUND)
    (folder / "broken_module.py").write_text("raise ValueError('broken')\n")
    distribution(
        folder,
        "others",
        "2.5",
        {kind: value for kind, (value, _) in FAULTS.items()} | {"opml": "others:Sound"},
    )
    distribution(folder, "rivals", "1.0", {"twice": "others:Sound"})
    return folder


def run(others: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "KINSTREAM_"))
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=others.parent,
        env={**kept, "PYTHONPATH": f"{ROOT / 'src'}:{others}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_fault_in_a_package_names_it_and_stops_no_other_learner(others: Path) -> None:
    script = """
import json
from kinstream.learners.registry import create, names
from kinstream.streams.errors import SettingsError
found = {}
for kind in names():
    try:
        found[kind] = create(kind).algorithm
    except SettingsError as error:
        found[kind] = str(error)
print(json.dumps(found))
"""
    done = run(others, "-c", script)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == {*registry.own_names(), *FAULTS}
    for kind, (_, reported) in FAULTS.items():
        assert found[kind] == "sound/1" if reported is None else reported in found[kind], kind
    assert found["opml"] == "opml/7"
    assert "others 2.5 offers a learner 'opml' (others:Sound): ignored" in done.stderr


def test_the_check_of_settings_names_the_package_with_all_other_faults(others: Path) -> None:
    (others.parent / "kinstream.toml").write_text(
        '[builders.one-pass]\nkind = "one-pass"\n'
        '[learners.a]\nkind = "broken"\nfrom = ["one-pass"]\n'
        '[learners.b]\nkind = "sound"\nfrom = ["one-pass"]\n'
        '[learners.c]\nkind = "soud"\nfrom = ["one-pass"]\n'
    )
    done = run(others, "-m", "kinstream.cli.main", "models", "list")
    assert done.returncode == 2
    assert "broken_module:Broken: ValueError: broken" in done.stderr
    assert "no learner is called 'soud'" in done.stderr and "sound" in done.stderr
    assert "learners.b" not in done.stderr


@pytest.mark.long
def test_a_learner_of_another_package_is_warmed_up_by_name(others: Path) -> None:
    done = run(others, "-m", "kinstream.cli.main", "warm-up", "sound")
    assert done.returncode == 0, done.stderr
    done = run(others, "-m", "kinstream.cli.main", "warm-up", "gone")
    assert done.returncode != 0 and "of others 2.5 cannot be imported" in done.stderr
