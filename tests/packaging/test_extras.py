"""The base installation follows models and uses their maps; what it lacks is reported with what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from kinstream.cli.evaluate.run import finish
from kinstream.learners import registry
from kinstream.streams import extras
from kinstream.streams.errors import PackageMissing
from tests.docs.pages import ROOT
from tests.golden.write_agents import CHECKPOINTS, config
from tests.packaging.without_extras import without_extras

if TYPE_CHECKING:
    from kinstream.evaluation.experiment.plan import Plan

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Their classes are made of metric-learn's.
OF_BASELINES = {"itml", "lmnn"}
MAX_MB = 150
SETTINGS = """
kafka.bootstrap_servers = "127.0.0.1:1"
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
from = ["one-pass"]
"""
#: Loads the newest model of every kind of learner, and maps and measures with it.
USE_MODELS = """
import json
import numpy as np
from pathlib import Path
from kinstream import ModelFollower
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import Model
from kinstream.streams.operations.models import from_checkpoints
from kinstream.streams.settings import Settings

settings = Settings.model_validate(json.loads(Path(sys.argv[1]).read_text()))
with ModelFollower.from_checkpoints("labelled", "opml", settings) as metric:
    followed = metric.wait().name
found = {}
for (space, learner), version in from_checkpoints(settings).models().items():
    if space != "labelled" or learner in sys.argv[3:]:
        continue
    model = Loader(settings).load(version, Model())
    if learner == "opml":
        assert model.name == followed
    rows = np.random.default_rng(0).normal(size=(5, model.dimension))
    X, Y = ({n: t[:, :d] for n, d in model.modalities} or t for t in (rows, rows[::-1].copy()))
    found[learner + " transform"] = model.transform(X)
    found[learner + " distance"] = model.distance(X, Y)
np.savez(sys.argv[2], **found)
"""


def test_every_model_is_followed_and_measures_the_same_without_the_packages_of_extras(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(config(CHECKPOINTS).model_dump_json())
    arguments: list[str | Path] = [settings, tmp_path / "without.npz", *sorted(OF_BASELINES)]
    done = without_extras(USE_MODELS, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    arguments[1] = tmp_path / "with.npz"
    subprocess.run([sys.executable, "-c", "import sys" + USE_MODELS, *arguments], cwd=tmp_path, check=True)
    mine, theirs = np.load(tmp_path / "without.npz"), np.load(tmp_path / "with.npz")
    wanted = set(registry.names()) - OF_BASELINES
    assert {name.partition(" ")[0].removesuffix("-length") for name in mine} == wanted
    for name in theirs:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_every_public_name_is_imported_or_names_its_extra(tmp_path: Path) -> None:
    code = """
import kinstream
for name in dir(kinstream):
    try:
        getattr(kinstream, name)
    except Exception as error:
        print(name, type(error).__name__, error)
"""
    done = without_extras(code, cwd=tmp_path)
    wanted = {"MetricLearner": "learn", "BlockSettings": "files", "LabelledLoad": "files"}
    lines = done.stdout.splitlines()
    assert {line.partition(" ")[0] for line in lines} == set(wanted), done.stderr
    for line in lines:
        name = line.partition(" ")[0]
        assert line.startswith(f"{name} PackageMissing {name} needs the package ")
        assert line.endswith(f"which is not installed: pip install 'kinstream[{wanted[name]}]'")


def test_a_star_import_takes_what_can_be_imported_whichever_extra_is_missing(tmp_path: Path) -> None:
    code = """
import kinstream
from kinstream import *

assert OPML(gamma=0.5).algorithm and ModelFollower and __version__
missing = [name for name in dir(kinstream) if name not in globals()]
try:
    MetricLearner
except NameError:
    pass
else:
    MetricLearner()
print(*missing)
"""
    for extra in sorted(set(extras.EXTRAS.values())):
        packages = {package for package, whose in extras.EXTRAS.items() if whose == extra}
        done = without_extras(code, cwd=tmp_path, packages=packages)
        assert done.returncode == 0, (extra, done.stderr)
    done = without_extras(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["BlockSettings", "LabelledLoad", "MetricLearner"]


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("kinstream.OPML().learn_triplets(*np.zeros((3, 4, 2)))", "learn"),
        ("from kinstream.learners.registry import create; create('itml')", "baselines"),
        ("kinstream.OAHU(path='torch')", "torch"),
        ("from kinstream.learners.models.onnx_graph import Graph; Graph()", "onnx"),
        ("from kinstream.evaluation.report import write_report; write_report({}, None)", "report"),
        (
            "from kinstream.search.service.process import require_packages; "
            "from kinstream.streams.settings import Settings; require_packages(Settings())",
            "serve",
        ),
        ("from kinstream.search.index.faiss import _faiss; _faiss()", "faiss"),
        ("from kinstream.search.stores.kinds import create; create('pgvector', None)", "pgvector"),
        ("from kinstream.search.stores.kinds import create; create('qdrant', None)", "qdrant"),
        ("from kinstream.search.stores.kinds import create; create('opensearch', None)", "opensearch"),
        ("import kinstream.search.client.langchain", "langchain"),
        ("import kinstream.search.client.llama_index", "llamaindex"),
        ("from kinstream.streams.traces.exporter import otlp; otlp('http://x', 'x')", "otel"),
        ("from kinstream.streams.kafka.tokens.msk_iam import fetch; fetch()", "msk"),
    ],
)
def test_from_python_the_error_names_the_command_that_installs(code: str, extra: str, tmp_path: Path) -> None:
    done = without_extras(f"import kinstream, numpy as np; {code}", cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(
        rf"kinstream\.streams\.errors\.PackageMissing: .* needs the package [\w-]+, which is not installed: "
        rf"pip install 'kinstream\[{extra}\]'",
        last,
    ), done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("worker learner opml", "worker"),
        ("up", "worker"),
        ("warm-up opml", "learn"),
        ("demo", "demo"),
        ("serve", "serve"),
        ("produce labelled rows.csv --space s", "files"),
    ],
)
def test_a_command_ends_with_one_line_that_names_the_command_that_installs(
    command: str, extra: str, tmp_path: Path
) -> None:
    code = f"sys.argv = ['kinstream', *{command.split()!r}]; from kinstream.cli.main import main; main()"
    (tmp_path / "rows.csv").write_text("f0,label\n1,a\n")
    (tmp_path / "kinstream.toml").write_text(SETTINGS)
    done = without_extras(code, cwd=tmp_path)
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("kinstream: ")]
    assert line.endswith(f"which is not installed: pip install 'kinstream[{extra}]'")
    assert "Traceback" not in done.stderr
    assert done.returncode == PackageMissing.exit_status


def test_an_evaluation_reports_that_packages_of_its_report_are_missing_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "installed", lambda package: package != "matplotlib")
    with pytest.raises(PackageMissing, match=r"matplotlib, which is not installed: .*kinstream\[report\]"):
        finish(cast("Plan", None), [], tmp_path, {"as_json": False, "jobs": 1})
    assert list(tmp_path.iterdir()) == []


def test_help_and_what_only_reads_need_no_extra(tmp_path: Path) -> None:
    for words in (["--help"], ["spaces", "list"], ["topics", "--help"], ["models", "--help"]):
        code = f"sys.argv = ['kinstream', *{words!r}]; from kinstream.cli.main import main; main()"
        done = without_extras(code, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_every_package_belongs_to_the_extra_that_is_recommended() -> None:
    for package, extra in extras.EXTRAS.items():
        text = str(extras.missing(package, "this"))
        name = text.removeprefix("this needs the package ").partition(",")[0]
        listed = {re.split(r"[<>=~\[]", one)[0] for one in PROJECT["optional-dependencies"][extra]}
        # What a package of ours brings along is not listed.
        assert name in listed or package in ("h11", "starlette"), (package, extra)


def test_no_version_is_pinned() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *(one for some in PROJECT["optional-dependencies"].values() for one in some),
    ]
    assert not [one for one in wanted if "==" in one]


def test_a_missing_module_of_no_extra_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError), extras.importing("this"):
        import_module("no_such_module")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_fresh_environment_is_small_and_follows_models(tmp_path: Path) -> None:
    """Needs an index of packages, or a cache of them."""
    wheel: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
    ]
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    subprocess.run([*wheel, source], check=True)
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    python = fresh / "bin" / "python"
    install: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *tmp_path.glob("*.whl")], check=True)
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "setuptools", "pip"], check=True)
    (packages,) = fresh.glob("lib/python*/site-packages")
    used = int(subprocess.check_output(["du", "-sm", packages], text=True).split()[0])
    assert used <= MAX_MB
    settings = tmp_path / "settings.json"
    settings.write_text(config(CHECKPOINTS).model_dump_json())
    arguments: list[str | Path] = [settings, tmp_path / "found.npz", *sorted(OF_BASELINES)]
    subprocess.run([python, "-c", "import sys" + USE_MODELS, *arguments], cwd=tmp_path, check=True)
    followed = [name for name in config(CHECKPOINTS).learners if name not in OF_BASELINES]
    assert len(np.load(tmp_path / "found.npz")) == 2 * len(followed)


@pytest.mark.parametrize(
    "page", sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]), ids=lambda page: page.name
)
def test_every_extra_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"kinstream\[([\w,]+)\]", page.read_text(encoding="utf-8"))
    assert {one for some in named for one in some.split(",")} <= PROJECT["optional-dependencies"].keys()
