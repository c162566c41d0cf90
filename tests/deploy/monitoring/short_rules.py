"""The shipped rules with all their durations divided: for tests that cannot wait an hour.

    python -m tests.deploy.monitoring.short_rules 30 < deploy/helm/kinstream/files/kinstream.alerts.yml

What is divided: `for:`, `interval:`, the windows in brackets, and offsets. Nothing else changes, see test_hurried.py.
"""

from __future__ import annotations

import re
import sys
from typing import Final

#: A duration in one of the places where the rules have one.
DURATION: Final = re.compile(
    r"(?P<before>^\s*(?:for|interval): |\[|\boffset )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|\)|\s|$)",
    re.MULTILINE,
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def seconds(match: re.Match[str]) -> int:
    """The length of a duration."""
    return int(match["number"]) * _SECONDS[match["unit"]]


def hurried(text: str, divisor: int) -> str:
    """The rules with every duration divided, and at least a second long."""

    def shorter(match: re.Match[str]) -> str:
        return f"{match['before']}{max(1, seconds(match) // divisor)}s{match['after']}"

    return DURATION.sub(shorter, text)


if __name__ == "__main__":
    sys.stdout.write(hurried(sys.stdin.read(), int(sys.argv[1])))
