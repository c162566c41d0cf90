"""`kinstream`: the commands, each imported only when it is called."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "up": (
        "kinstream.cli.commands.up:up",
        "Run every agent and service of the settings together on this machine.",
    ),
    "demo": (
        "kinstream.cli.demo.command:demo",
        "Learn from data of Python packages on the embedded broker, and show the result.",
    ),
    "init": ("kinstream.cli.system.init:init", "Write a commented kinstream.toml to begin with."),
    "check": (
        "kinstream.cli.system.check:check",
        "Check settings, brokers, topics, rights, store and clocks, and say what mends each fault.",
    ),
    "status": (
        "kinstream.cli.system.status:status",
        "Show what runs, how far behind it is, and how good the models are.",
    ),
    "produce": ("kinstream.cli.produce.command:produce", "Send data to kinstream.events."),
    "worker": ("kinstream.cli.commands.worker:worker", "Run one source, builder, learner or metrics agent."),
    "sources": (
        "kinstream.cli.commands.sources:sources",
        "Try the mapping of a source on records of its topic or of a file.",
    ),
    "serve": (
        "kinstream.cli.commands.serve:serve",
        "Answer nearest-neighbour queries while the metric is being learned, from an index or your own store.",
    ),
    "topics": (
        "kinstream.cli.commands.topics:topics",
        "Create the topics, add partitions, or print rights.",
    ),
    "spaces": (
        "kinstream.cli.commands.spaces:spaces",
        "List, create, reset, delete, pause or resume spaces.",
    ),
    "models": ("kinstream.cli.commands.models:models", "List, show or export learned metrics."),
    "gate": (
        "kinstream.cli.commands.gate:gate",
        "Show who serves and why; promote, pin or roll back a model.",
    ),
    "vectors": (
        "kinstream.cli.commands.vectors:vectors",
        "Write a version of a catalogue when its item map has moved.",
    ),
    "closure": (
        "kinstream.cli.commands.closure:closure",
        "Explain why two items are similar or dissimilar.",
    ),
    "dead-letters": (
        "kinstream.cli.commands.dead_letters:dead_letters",
        "List, show or redrive records that could not be used.",
    ),
    "replay": (
        "kinstream.cli.commands.replay:replay",
        "Run builders and learners over a log, without touching the system.",
    ),
    "evaluate": (
        "kinstream.cli.evaluate.command:evaluate",
        "Compare learners with each other and with un-learned metrics, on your data or log.",
    ),
    "skip": ("kinstream.cli.commands.skip:skip", "Make a consumer skip one record."),
    "accept-gap": (
        "kinstream.cli.commands.skip:accept_gap",
        "Let a consumer continue although the log has lost records.",
    ),
    "warm-up": ("kinstream.cli.commands.warm_up:warm_up", "Compile the kernels in advance."),
}


#: Python looks for cycles among new objects once there are so many; its own number is 700.
NEW_OBJECTS: Final = 50_000

#: All extras of a command, if it needs more than the extra of the first missing package.
_EXTRAS: Final = {
    "up": "worker",
    "demo": "demo",
    "worker": "worker",
    "sources": "worker",
    "serve": "serve",
    "replay": "learn",
    "evaluate": "learn,files,report",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; listing them imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        from kinstream.streams.extras import importing

        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            with importing(f"kinstream {name}", _EXTRAS.get(name)):
                raise error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.option(
    "--config", type=click.Path(dir_okay=False), help="Settings file; kinstream.toml if there is one."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Set one setting, by its dotted name."
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    metavar="LEVEL",
    help="DEBUG, INFO, WARNING or ERROR.",
)
@click.version_option(package_name="kinstream")
@click.pass_context
def cli(ctx: click.Context, config: str | None, overrides: tuple[str, ...], log_level: str) -> None:
    """Streaming similarity learning on Kafka.

    Example: kinstream --set checkpoints.url=/var/lib/kinstream worker learner opml
    """
    from kinstream.streams.processes.log_lines import begin

    begin(log_level)
    ctx.obj = {"config": config, "overrides": overrides, "log_level": log_level}


def main() -> None:
    """Entry point: errors of our own are printed in one line, without a traceback."""
    from kinstream.streams.errors import KinstreamError
    from kinstream.streams.processes.log_lines import report
    from kinstream.streams.processes.output import begin_output, end_errors, end_output

    # What is imported stays, and need not be searched for cycles again and again.
    gc.set_threshold(NEW_OBJECTS)
    begin_output()
    try:
        try:
            cli()
        except SystemExit:
            end_output()
            end_errors()
            raise
    except KinstreamError as error:
        report(str(error))
        status = error.exit_status
    except Exception:
        # A bug: print the traceback with secrets hidden, since other libraries may quote their arguments.
        report("the command ended by an error", traceback=True)
        status = 1
    with suppress(KinstreamError):
        end_output()
    end_errors()
    sys.exit(status)


if __name__ == "__main__":
    main()
