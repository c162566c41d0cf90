"""`make audit`: known vulnerabilities of what is installed, asked of pip-audit's database.

No part of the tests: it needs a network, and what it says changes while the project does not. Status 0: none known;
1: some are; 2: nothing was checked, and the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: Its own environment: what audits is no part of what is audited.
TOOLS: Final = ROOT / ".cache" / "audit"
NOT_CHECKED: Final = 2


def main() -> int:
    tool = TOOLS / "bin" / "pip-audit"
    if not tool.exists():
        print("installing pip-audit into .cache/audit", flush=True)
        venv.create(TOOLS, with_pip=True, clear=True)
        done = _run([str(TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", "pip-audit>=2.7,<3"])
        if done.returncode != 0:
            return _not_checked("pip-audit cannot be installed", done.stderr)
    done = _run(
        [str(tool), "--path", sysconfig.get_path("purelib"), "--format", "json", "--progress-spinner", "off"]
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _not_checked("pip-audit cannot reach its database", done.stderr)
    return report(found)


def report(found: list[dict[str, Any]]) -> int:
    """Tell what pip-audit found of each package; the exit status."""
    skipped = [one for one in found if "skip_reason" in one]
    bad = [one for one in found if one.get("vulns")]
    if len(skipped) == len(found):
        return _not_checked("the database knows no package", skipped[0]["skip_reason"] if skipped else "")
    for one in bad:
        for known in one["vulns"]:
            fixed = ", ".join(known["fix_versions"]) or "no version"
            print(f"{one['name']} {one['version']}: {known['id']}, mended in {fixed}")
    if skipped:
        print(f"not checked: {', '.join(one['name'] for one in skipped)}")
    print(f"{len(found) - len(skipped)} packages checked; {len(bad)} with known vulnerabilities")
    return 1 if bad else 0


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def _not_checked(why: str, said: str) -> int:
    last = [line for line in said.splitlines() if line.strip()][-1:] or ["no reason was given"]
    print(f"nothing was checked: {why}: {last[0].strip()[:300]}")
    return NOT_CHECKED


if __name__ == "__main__":
    sys.exit(main())
