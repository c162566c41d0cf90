"""What README and docs say is so: examples run, commands exist, settings, metrics and reasons are complete."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinstream.cli.main import cli
from kinstream.learners import registry as learners
from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.closure.closure import Closure
from kinstream.processors.registry import create
from kinstream.processors.samples.one_pass import OnePass
from kinstream.streams.checkpoints.manifest import versions
from kinstream.streams.errors import Reason
from kinstream.streams.failpoints import VARIABLE
from kinstream.streams.processes.supervisor import LEASH, RESTARTS
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.values import Click, ItemBlock, Relation, SampleBlock
from kinstream.streams.settings import load
from kinstream.streams.topics import CATALOGUE
from tests.docs.pages import MARK, PAGES, ROOT, Block, anchors, blocks, links, prose, rows
from tests.docs.settings_reference import written
from tests.monitoring.test_promtool import full_page
from tests.search.index_service import full_page as search_page
from tests.search.store_service import full_page as gateway_page

DOCS = ROOT / "docs"
#: What a table says where there is no default.
NONE = "none"
REQUIRED = "required"


def found(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, *languages)]


def literal(cell: str) -> Any:
    """A default in a table: `TOML`, none, or required."""
    if cell in (NONE, REQUIRED):
        return None if cell == NONE else REQUIRED
    return tomllib.loads(f"x = {cell.strip('`')}")["x"]


# ---- examples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", found("json"), ids=lambda block: block.place)
def test_every_json_example_decodes(block: Block) -> None:
    record = decode(block.text.encode(), SampleBlock, ItemBlock, Click, Relation)
    assert record.space == json.loads(block.text)["space"]


def test_there_is_a_json_example_of_every_kind() -> None:
    kinds = {json.loads(block.text)["kind"] for block in blocks(DOCS / "json-events.md", "json")}
    assert kinds == {"samples", "items", "click", "relation"}


@pytest.mark.parametrize(
    "block", [b for b in found("python") if b.before == MARK], ids=lambda block: block.place
)
def test_every_marked_python_example_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block.text, encoding="utf-8")
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", found("toml"), ids=lambda block: block.place)
def test_every_settings_example_is_accepted(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "gate_key_file" in block.text:
        Path("gate.key").write_text("a secret of the examples")
    else:
        monkeypatch.setenv("KINSTREAM_GATE_KEY", "a secret of the examples")
    file = tmp_path / "kinstream.toml"
    builder = "" if "[builders." in block.text else '[builders.one-pass]\nkind = "one-pass"\n'
    file.write_text(builder + block.text, encoding="utf-8")
    settings = load(file)
    for builder_section in settings.builders.values():
        create(builder_section.kind, **builder_section.arguments())
    for section in settings.learners.values():
        learners.create(section.kind, **section.arguments())


# ---- commands ---------------------------------------------------------------------------------------------------


def commands() -> list[tuple[str, str]]:
    """(place, line) of every `kinstream ...` line in a shell example."""
    return [
        (block.place, line)
        for block in found("sh")
        for line in block.text.splitlines()
        if line.startswith("kinstream ")
    ]


def resolve(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and the arguments that are left for it."""
    context = click.Context(cli, info_name="kinstream")
    _, rest, _ = cli.make_parser(context).parse_args(list(arguments))
    command: click.Command = cli
    while isinstance(command, click.Group) and rest:
        if command.invoke_without_command and rest[0].startswith("-"):
            break
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"there is no command {rest[0]!r}"
        command, rest = inner, rest[1:]
    return command, rest


@pytest.mark.parametrize(("place", "line"), commands())
def test_every_command_in_an_example_is_parsed_whole(place: str, line: str) -> None:
    command, rest = resolve(shlex.split(line, comments=True)[1:])
    assert not isinstance(command, click.Group) or command.invoke_without_command, line
    command.make_context(line, rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_the_text_exists(page: Path) -> None:
    for inline in re.findall(r"`kinstream ([^`]+)`", prose(page)):
        for variant in alternatives(inline):
            command, _ = resolve(variant)
        if " | " not in inline and "..." not in inline:
            known = {name for one in (command, cli) for param in one.params for name in param.opts}
            named = {word.partition("=")[0] for word in shlex.split(inline) if word.startswith("--")}
            assert named <= known | {"--help"}, inline
            words = [word for word in shlex.split(inline) if word != "--help"]
            command, rest = resolve(words)
            if not isinstance(command, click.Group):
                taking = {
                    name for one in command.params for name in one.opts if not getattr(one, "is_flag", True)
                }
                # An option may be named without its value.
                rest += ["1"] * (words[-1] in taking)
                _, left, _ = command.make_parser(click.Context(command)).parse_args(rest)
                assert not left, f"kinstream {inline}: {left} is too much"


def alternatives(text: str) -> list[list[str]]:
    """The words of an inline command up to its first name or option; `a | b` stands for both."""
    parts = text.split(" | ")
    first = [word for word in shlex.split(parts[0]) if word != "..."]
    options = [number for number, word in enumerate(first) if word.startswith("--")]
    if options and options[0] > 0:
        first = first[: options[0]]
    return [first, *([*first[:-1], part.split()[0]] for part in parts[1:])]


# ---- tables against the code ------------------------------------------------------------------------------------


def test_the_tables_of_settings_are_made_of_the_settings() -> None:
    """`python -m tests.docs.settings_reference` writes them."""
    page = DOCS / "operating.md"
    assert written(page.read_text(encoding="utf-8")) == page.read_text(encoding="utf-8")


def arguments(of: Any) -> dict[str, Any]:
    parameters = signature(of).parameters.values()
    return {p.name: REQUIRED if p.default is Parameter.empty else p.default for p in parameters}


def test_the_hyper_parameters_are_those_of_the_constructors() -> None:
    page = DOCS / "learners.md"
    common = {name.strip("`"): literal(default) for name, default, _ in rows(page, "Common settings")}
    own: dict[str, dict[str, Any]] = {kind: {} for kind in learners.own_names()}
    for kinds, name, default, _ in rows(page, "Hyper-parameters"):
        for kind in kinds.split(", "):
            assert name.strip("`") not in own[kind.strip("`")], f"{kind}: {name} stands there twice"
            own[kind.strip("`")][name.strip("`")] = literal(default)
    for kind in learners.own_names():
        made = arguments(type(learners.create(kind)))
        shared = {name: value for name, value in common.items() if name in made and name not in own[kind]}
        assert own[kind] | shared == made, kind
    assert all(any(learners.has(kind, name) for kind in learners.own_names()) for name in common)


def test_every_learner_stands_in_one_table_and_among_the_sources() -> None:
    first, others = (
        {row[0].strip("`"): row[1] for row in rows(DOCS / "learners.md", heading)}
        for heading in ("Which one", "Learners of the papers")
    )
    assert not first.keys() & others.keys()
    told = first | others
    assert told.keys() == set(learners.own_names())
    for kind, form in told.items():
        wanted = "as its base" if kind == "fusion" else f"{learners.create(kind).form}s"
        assert form.startswith(wanted), kind
    sources = [
        kind
        for _, cell in rows(DOCS / "learners.md", "What is certain")
        for kind in re.findall("`(.+?)`", cell)
    ]
    batch = {"euclidean", "mahalanobis", "rca", "lmnn", "itml"}
    assert sorted(sources) == sorted(set(learners.own_names()) - batch)


def test_the_settings_of_the_builder_are_those_of_its_constructor() -> None:
    told = {row[0].strip("`"): literal(row[1]) for row in rows(DOCS / "building.md", "One-pass")}
    assert told == arguments(OnePass)
    section = rows(DOCS / "building.md", "Settings of the click builder")
    told = {row[0].strip("`"): literal(row[1]) for row in section}
    assert told == {name: list(v) if name == "rules" else v for name, v in arguments(Clicks).items()}
    section = rows(DOCS / "building.md", "Settings of the closure builder")
    assert {row[0].strip("`"): literal(row[1]) for row in section} == arguments(Closure)
    for kind in ("Random pairs", "Random triplets", "Adjacent pairs"):
        told = {row[0].strip("`"): literal(row[1]) for row in rows(DOCS / "building.md", kind)}
        made = arguments(type(create(kind.lower().replace(" ", "-"))))
        assert told == {name: list(v) if isinstance(v, tuple) else v for name, v in made.items()}


@cache
def exposed() -> dict[str, set[str]]:
    """Every series of ours with its labels, as the collectors show it."""
    series: dict[str, set[str]] = {}
    pages = full_page().decode(), search_page().decode(), gateway_page().decode()
    for family in (one for text in pages for one in text_string_to_metric_families(text)):
        for sample in family.samples:
            if not sample.name.startswith("kinstream_"):
                continue
            name = family.name if family.type == "histogram" else sample.name
            series.setdefault(name, set()).update(set(sample.labels) - {"le"})
    # The page of that test is made with some of the versions only.
    assert series["kinstream_build_info"] <= versions().keys()
    return series | {"kinstream_build_info": set(versions())}


def test_the_series_are_those_that_the_collectors_expose() -> None:
    told = {
        row[0].strip("`"): set(filter(None, row[1].split(", ")))
        for row in rows(DOCS / "metrics.md")
        if row[0].startswith("`kinstream_")
    }
    assert told == exposed()


def test_the_meaning_of_a_series_begins_with_its_help_text() -> None:
    pages = full_page().decode(), search_page().decode(), gateway_page().decode()
    families = [one for text in pages for one in text_string_to_metric_families(text)]
    helps = {f"`{sample.name}`": one.documentation for one in families for sample in one.samples}
    helps |= {f"`{one.name}`": one.documentation for one in families if one.type == "histogram"}
    for series, _, meaning in (row for row in rows(DOCS / "metrics.md") if row[0].startswith("`kinstream_")):
        plain = re.sub(r"\[([^\]]*)\]\(.*?\)", r"\1", meaning).replace("`", "")
        assert plain.startswith(helps[series].replace("`", "")), series


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_series_that_is_named_exists(page: Path) -> None:
    assert set(re.findall(r"`(kinstream_[a-z_]+)`", prose(page))) <= exposed().keys()


def test_the_reasons_are_those_of_dead_letters() -> None:
    told = [row[0].strip("`") for row in rows(DOCS / "operating.md", "Dead letters")]
    assert told == [reason.value for reason in Reason]


def test_the_topics_are_those_of_the_catalogue() -> None:
    told = [row[0].strip("`") for row in rows(DOCS / "records.md", "Topics")]
    assert told == [topic.role for topic in CATALOGUE]


def test_the_variables_are_those_that_the_code_reads() -> None:
    told = prose(DOCS / "operating.md")
    assert all(f"`{name}`" in told for name in (VARIABLE, LEASH, RESTARTS, "KINSTREAM_DATA"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"
