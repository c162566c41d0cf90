"""The packages of the distribution, as setup.py names them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def _named() -> tuple[str, ...]:
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "NAMES"
        ):
            assert node.value is not None
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("setup.py has no NAMES")


#: Folders at the top, which are imported as kinstream.NAME.
PACKAGES: Final = _named()
