"""Writes the dashboards: `python -m deploy.grafana.source`; with `--check` it reports whether they are up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from deploy.grafana.source import better, learners, learning, stream
from deploy.grafana.source.panels import Json

FOLDER: Final = Path(__file__).resolve().parents[2] / "helm" / "kinstream" / "files" / "dashboards"


def made() -> dict[Path, str]:
    """The text of every file."""
    dashboards: tuple[Json, ...] = (
        learning.DASHBOARD,
        stream.DASHBOARD,
        learners.DASHBOARD,
        better.DASHBOARD,
    )
    return {
        FOLDER / f"{one['uid']}.json": json.dumps(one, indent=2, ensure_ascii=False) + "\n"
        for one in dashboards
    }


def main(arguments: list[str]) -> int:
    """Write; with `--check` compare instead, and return 1 if a file differs."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m deploy.grafana.source [--check]", file=sys.stderr)
        return 2
    status = 0
    for path, text in made().items():
        if not arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path}: differs from the source; run python -m deploy.grafana.source", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
