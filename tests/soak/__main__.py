"""`python -m tests.soak --minutes 30`: prints a table for README.md here; status 1 where a promise did not hold."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.kafka.jars import missing
from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, help="of the faults; drawn and printed by default")
    parser.add_argument("--output", type=Path, default=Path(".cache/soak.json"), help="where the figures go")
    asked = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"the soak needs a real Kafka: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kinstream-soak-") as folder:
        result = soak(Path(folder), asked.minutes, asked.seed)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(json.dumps(result.as_json(), indent=2) + "\n", encoding="utf-8")
    print(f"\n{result.as_markdown()}\n\nwritten to {asked.output}")
    return 0 if result.held else 1


if __name__ == "__main__":
    sys.exit(main())
