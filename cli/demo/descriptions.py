"""The demonstrations as descriptions: the agents, the data, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMMON: Final = """\
# The settings of `{command}`. You can start your own settings from them.
[checkpoints]
url = "{{checkpoints}}"
interval_seconds = 1.0

[worker]
together = false                        # its table shows each agent by its process
shutdown_seconds = 6.0

[metrics]
window = 250
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """One demonstration.

    Parameters
    ----------
    title : of the live table.
    folder : for settings, checkpoints and logs; it is emptied at the start.
    settings : a settings file, with a place for `checkpoints`.
    source, space, hold_out, seed : what is learned, and the rows on which the error is measured.
    send : the command that sends the data, and its options; the options of the fields above are added.
    learner : the learner whose metric the commands at the end export.
    caption : under the table of errors.
    evidence : whether to show the fate of the events, and constraints by rule.
    closure : the builder that the commands at the end query for why two items are similar.
    """

    title: str
    folder: Path
    settings: str
    source: str
    space: str
    hold_out: float
    seed: int
    send: tuple[str, Mapping[str, object]]
    learner: str
    caption: str
    evidence: bool = False
    closure: str | None = None

    @property
    def producer(self) -> list[str]:
        """The command line that sends the data."""
        command, options = self.send
        options = {
            "--space": self.space,
            "--hold-out": self.hold_out,
            **options,
        }
        return ["produce", command, self.source, *(str(word) for pair in options.items() for word in pair)]


def columns(rate: float = 800.0, repeat: int = 3) -> Demo:
    """40 columns in units of their own, of which six say something of the class: no scaling knows which."""
    return _labelled("classification", 0.4, rate, repeat, "40 columns, of which 6 matter")


def breast_cancer(rate: float = 400.0, repeat: int = 6) -> Demo:
    """A set whose features have very different scales: a z-score gains most."""
    return _labelled("breast_cancer", 0.4, rate, repeat)


def digits(rate: float = 400.0, repeat: int = 3) -> Demo:
    """A set whose raw pixels are a good space already: learning wins little or nothing."""
    return _labelled("digits", 0.3, rate, repeat)


def _labelled(source: str, hold_out: float, rate: float, repeat: int, title: str | None = None) -> Demo:
    """Labelled rows through the one-pass builder."""
    seed = 1
    settings = """
[builders.one-pass]
kind = "one-pass"

# Features as they are: it finds out which scaling fits, and whether learning pays.
[learners.mixture]
kind = "mixture"
from = ["one-pass"]

# A single learner beside it.
[learners.opml]
kind = "opml"
from = ["one-pass"]
scaler = "zscore"
# As the mixture has it: kernels are compiled for one number type.
dtype = "float32"
"""
    return Demo(
        title=f"kinstream: {title or source.replace('_', ' ')} on the embedded broker",
        folder=Path(".kinstream/demo"),
        settings=_COMMON.format(command="kinstream demo") + settings,
        source=f"sklearn:{source}",
        space=source.replace("_", "-"),
        hold_out=hold_out,
        seed=seed,
        send=(
            "labelled",
            {
                "--rate": rate,
                "--repeat": repeat,
                "--shuffle-seed": seed,
                "--block-rows": 32,
                "--max-backlog": 64,
            },
        ),
        learner="mixture",
        caption="Rows without counts: nothing learned, scales of all streamed rows",
    )


def clicks() -> Demo:
    """Items, then result lists over them and their clicks, through the builders of clicks and of the closure."""
    seed = 1
    # The dwell limit filters most of the noise: users leave soon after a mistaken click.
    settings = """
[builders.clicks]
kind = "clicks"
rules = ["click-skip-previous", "click-skip-above"]
min_dwell_ms = 12000

[builders.closure]
kind = "closure"
emit = "pairs"
from_labels = false
min_dwell_ms = 12000
max_new_pairs = 10

# Lists are in random order here, so that a click says something of its item and not of its place. In lists that were
# ranked, these rules rank worse than no learning: there, take rules = ["click-list"] and a learner of kind "adapter".
# A tenth of the usual step and less: one click in ten is noise.
[learners.opml]
kind = "opml"
from = ["clicks"]
unranked_lists = true
gamma = 0.003
scaler = "zscore"

[learners.opml-raw]
kind = "opml"
from = ["clicks"]
unranked_lists = true
gamma = 0.001
"""
    return Demo(
        title="kinstream: clicks on digits, on the embedded broker",
        folder=Path(".kinstream/demo-clicks"),
        settings=_COMMON.format(command="kinstream demo clicks") + settings,
        source="sklearn:digits",
        space="clicks",
        hold_out=0.6,
        seed=seed,
        send=(
            "simulated-clicks",
            {
                "--lists": 15_000,
                "--seed": seed,
                "--rate": 1_200,
                "--block-rows": 64,
                "--max-backlog": 32,
            },
        ),
        learner="opml",
        caption="Learned from clicks alone; labels decide what simulated users click, and measure the error.\n"
        "Lists are in random order. opml: compare with 'euclidean, zscore', its scaler; opml-raw: with 'euclidean'.",
        evidence=True,
        closure="closure",
    )


#: Keyed by the names that `kinstream demo` takes.
DEMOS: Final[dict[str, Callable[..., Demo]]] = {
    "columns": columns,
    "breast-cancer": breast_cancer,
    "digits": digits,
    "clicks": clicks,
}
