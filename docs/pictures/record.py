"""Draws docs/pictures/demo.svg: what a terminal shows at the end of `kinstream demo`. Run it as `make picture`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PICTURE: Final = Path(__file__).with_name("demo.svg")
WIDTH: Final = 100
#: The picture begins at the title of the live table, and ends before paths and commands that are there to be copied.
BEGIN: Final = "kinstream: "
END: Final = "Checkpoints:"
#: Fonts of another host: without them the reader's own monospaced font is taken.
_FONTS: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_STEP: Final = re.compile(r"(\r?\n|\r|\x1b\[\d*A|\x1b\[2K|\x1b\[\?25[lh])")


def output_of(command: list[str], folder: Path) -> str:
    """All that a command writes to a terminal of `WIDTH` columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "LINES": "50", "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 65536):
            found += part
    except OSError:
        pass  # how Linux reports that the other end is closed
    finally:
        os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command} ended with status {process.returncode}:\n{found.decode()}")
    return found.decode()


def screen(output: str) -> list[str]:
    """The lines that are left on the terminal once every redrawing is done, with their colours."""
    lines, row = [""], 0
    for part in _STEP.split(output):
        if part.endswith("\n"):
            row += 1
        elif part == "\r":
            pass  # what follows is a whole line or its clearing
        elif part.endswith("A") and part.startswith("\x1b["):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b[?25"):
            lines[row] += part
        lines += [""] * (row + 1 - len(lines))
    return lines


def draw(lines: list[str]) -> None:
    """Write the picture."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text("$ kinstream demo"))
        for line in lines:
            console.print(Text.from_ansi(line.rstrip()))
        svg = console.export_svg(title="kinstream demo", unique_id="kinstream-demo")
    svg = _FONTS.sub("", svg)
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def main() -> None:
    command = [sys.executable, "-m", "kinstream.cli.main", "demo"]
    with tempfile.TemporaryDirectory() as folder:
        lines = screen(output_of(command, Path(folder)))
    start = next(n for n, line in enumerate(lines) if BEGIN in line)
    stop = next(n for n, line in enumerate(lines) if line.startswith(END))
    draw(lines[start:stop])
    print(PICTURE)


if __name__ == "__main__":
    main()
