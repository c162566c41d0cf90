"""The style of charts, and their drawings: the same bytes for the same chart.

An SVG takes its colours from a style sheet of its own, so that it follows the light or dark theme of the reader.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure

INK: Final = "#1c2230"
MUTED: Final = "#667085"
GRID: Final = "#dfe3ea"


@dataclass(frozen=True, slots=True)
class Look:
    """The style of a series: distinguished by dashes and marker as well as by colour."""

    colour: str
    dark: str
    dash: str | tuple[int, tuple[float, ...]]
    marker: str


#: Colours that can be distinguished with any colour vision (after Okabe and Ito), with 3:1 to the page at least.
LOOKS: Final = (
    Look("#0b6fb8", "#5cb3f0", "-", "o"),
    Look("#c8500a", "#ff9a57", (0, (5.0, 1.6)), "s"),
    Look("#0a8664", "#3fd0a6", (0, (1.4, 1.4)), "^"),
    Look("#a8327e", "#f08cc8", (0, (6.0, 1.5, 1.4, 1.5)), "D"),
    Look("#5b4bc4", "#aa9dff", "-", "v"),
    Look("#84660a", "#e0bf4c", (0, (3.0, 1.2)), "P"),
)

_DARK: Final = {INK: "#e6e9f0", MUTED: "#9aa3b5", GRID: "#343b4a"} | {
    look.colour: look.dark for look in LOOKS
}
_NAMES: Final = {colour: f"--c{i}" for i, colour in enumerate(_DARK)}
_FONT: Final = "'DejaVu Sans'"
_STYLE: Final = (
    "*{stroke-linejoin:round;stroke-linecap:butt}text{font-family:system-ui,'DejaVu Sans',sans-serif}"
    f":root{{{';'.join(f'{_NAMES[colour]}:{colour}' for colour in _DARK)}}}"
    "@media (prefers-color-scheme:dark){"
    f":root{{{';'.join(f'{_NAMES[colour]}:{dark}' for colour, dark in _DARK.items())}}}}}"
)

#: Whatever a user has set for matplotlib, charts are drawn with its defaults and these.
_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "text.color": INK,
    # A name with two dollar signs is not a formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kinstream",
    "path.simplify": True,
    "path.simplify_threshold": 0.1,
}

# What matplotlib writes into an SVG.
_STYLE_ELEMENT: Final = re.compile(r'<style type="text/css">.*?</style>', re.DOTALL)
_STYLE_ATTRIBUTE: Final = re.compile(r'style="[^"]*"')
_GEOMETRY: Final = re.compile(r' (?:d|x|y|points|transform|width|height)="[^"]*"')
_GROUP: Final = re.compile(r'<g id="[^"]*">')
_FRACTION: Final = re.compile(r"-?\d+\.\d+")
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}")
_BEFORE: Final = re.compile(r"^.*?(?=<svg )", re.DOTALL)


@contextmanager
def styled() -> Iterator[None]:
    """The style, for what is drawn and saved within."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Of a name with letters that the font lacks; the page has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def svg(figure: Figure) -> str:
    """A drawing without background, in the theme of the reader. Within `styled`."""
    file = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawing = _STYLE_ELEMENT.sub(lambda _: f"<style>{_STYLE}</style>", file.getvalue(), count=1)
    drawing = _STYLE_ATTRIBUTE.sub(_themed, _BEFORE.sub("", drawing))
    drawing = _GEOMETRY.sub(_shorter, drawing)
    return _GROUP.sub("<g>", drawing)


def _themed(match: re.Match[str]) -> str:
    style = match[0].replace(f"font-family: {_FONT}; ", "").replace(f"; font-family: {_FONT}", "")
    return _COLOUR.sub(
        lambda colour: f"var({_NAMES[colour[0]]})" if colour[0] in _NAMES else colour[0], style
    )


def _shorter(match: re.Match[str]) -> str:
    """Geometry in fewer letters: what follows a line, without another sign, is a line."""
    found = _FRACTION.sub(_rounded, match[0]).replace("\n", "")
    return found if "C" in found or "Q" in found else found.replace(" L ", " ")


def _rounded(match: re.Match[str]) -> str:
    """Rounded to a tenth of a point, which is invisible."""
    return f"{float(match[0]):.1f}".removesuffix(".0")
