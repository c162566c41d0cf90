"""The figures of what a user can turn: commands, options, settings. `-s` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

import click
import pytest

from kinstream.cli.main import cli
from kinstream.learners import registry as learners
from kinstream.processors.registry import create, names
from tests.docs.settings_reference import sections

#: Options of one command, and settings of one builder or learner.
MOST = 12
MOST_COMMANDS, MOST_IN_ALL = 44, 323


def commands(command: click.Command = cli, path: str = "") -> Iterator[tuple[str, int]]:
    """Every command that can be called, with the number of its options; those of the root are on every command."""
    options = sum(isinstance(one, click.Option) for one in command.params)
    if not isinstance(command, click.Group):
        yield path, options
        return
    if command.invoke_without_command:
        yield path, options
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}".strip())


def test_there_are_few_commands_with_few_options() -> None:
    found = dict(commands())
    settings = sum(map(len, sections().values()))
    options = sum(found.values())
    print(f"{len(found)} commands, {options} options, {settings} settings")
    assert {path: number for path, number in found.items() if number > MOST} == {}
    assert len(found) <= MOST_COMMANDS
    assert options + settings <= MOST_IN_ALL


@pytest.mark.parametrize("kind", names())
def test_a_builder_has_few_settings(kind: str) -> None:
    assert len(signature(type(create(kind))).parameters) <= MOST


@pytest.mark.parametrize("kind", learners.own_names())
def test_a_learner_has_few_settings(kind: str) -> None:
    assert len(signature(type(learners.create(kind))).parameters) <= MOST
