"""What was compiled once is used until a file behind it changes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinstream
from kinstream.learners.kernels.one_modality import opml_blocks
from kinstream.streams.compute import compilation

ROOT = Path(kinstream.__file__).parent
PACKAGES = ("learners", "processors", "search", "streams")

SHARED = """
from kinstream.streams.compute.compilation import compiled

@compiled
def piece(x):
    return x + {number}
"""
USER = """
from kinstream.streams.compute.compilation import compiled
from kinstream.learners.kernels.shared_piece import piece

@compiled
def twice(x):
    return 2 * piece(x)
"""
SCRIPT = """
import sys
from kinstream.learners import kernels
kernels.__path__.insert(0, sys.argv[1])
from kinstream.learners.kernels.user_of_piece import twice
print(twice(1), sum(twice.stats.cache_hits.values()))
"""


@pytest.mark.long
def test_a_change_of_a_shared_piece_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "user_of_piece.py").write_text(USER)

    def run() -> list[str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        root = Path(__file__).parents[2]
        return subprocess.run(
            command, env=environment, cwd=root, capture_output=True, text=True, timeout=120, check=True
        ).stdout.split()

    machine_code: list[set[str]] = []
    for number, answer in ((10, "22"), (2000, "4002")):
        (tmp_path / "shared_piece.py").write_text(SHARED.format(number=number))
        assert run() == [answer, "0"]
        assert run() == [answer, "1"]
        machine_code.append({path.name for path in (tmp_path / "cache").rglob("*.nbc")})
    # No file is written twice: another process may be about to read it.
    before, after = machine_code
    assert before < after and len(after) == 2 * len(before)


def test_files_that_are_imported_belong_to_the_stamp() -> None:
    names = {path.name for path in compilation.sources(Path(opml_blocks.__file__))}
    assert {"opml_blocks.py", "compilation.py", "equal_vectors.py", "events.py", "shared.py"} <= names


def kernel_files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "compute.compilation import compiled" in path.read_text(encoding="utf-8"):
                yield path


def used_in_kernels(tree: ast.Module) -> set[str]:
    """Names that stand in a compiled function."""
    return {
        node.id
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        and any(getattr(d, "id", "").startswith("compiled") for d in function.decorator_list)
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize("path", list(kernel_files()), ids=lambda path: "/".join(path.parts[-3:]))
def test_a_kernel_takes_pieces_only_from_files_of_its_stamp(path: Path) -> None:
    """A constant or a helper from elsewhere could change, and the old machine code would go on being used."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used, stamp = used_in_kernels(tree), set(compilation.sources(path))
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("kinstream."):
            continue
        package = ROOT.joinpath(*str(node.module).split(".")[1:])
        for alias in node.names:
            module = package / f"{alias.name}.py"
            file = module if module.exists() else package.with_suffix(".py")
            assert (alias.asname or alias.name) not in used or file in stamp, f"{alias.name} of {node.module}"


@pytest.mark.long
def test_imports_are_found_as_the_parser_finds_them() -> None:
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        expected = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                expected |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                expected |= {alias.name for alias in node.names}
        assert set(compilation._imported(path)) == expected, path


LATE = """
import sys
from kinstream.learners.kernels.one_modality import opml
from kinstream.learners.registry import create, names
from kinstream.processors import registry as builders
from kinstream.streams.compute.compilation import compiled

for kind in ("one-pass", "closure", "clicks"):
    builders.create(kind)
for kind in names():
    try:
        create(kind)
    except Exception as error:
        assert "must" in str(error) or "needs" in str(error), (kind, error)
assert "numba" not in sys.modules

def add(piece):
    @compiled
    def added(x):
        return piece(x) + twice(x)
    return added

@compiled
def twice(x):
    return 2 * x

added, table = add(twice), {"twice": twice}
assert added.__name__ == "added" and "numba" not in sys.modules
print(added(3), table["twice"](4), len(table["twice"].signatures), type(twice).__name__)

@compiled
def late(x):
    return twice(x) + 1

print(late(5), type(late).__name__, type(opml.triplets).__name__)
"""


def test_numba_is_imported_with_the_first_call_of_a_kernel(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert told.stdout.splitlines() == ["12 8 1 CPUDispatcher", "11 CPUDispatcher CPUDispatcher"], told.stderr


BARE = """
import sys
import numpy as np
from kinstream.streams.compute.compilation import compiled

@compiled
def twice(x):
    return 2 * x

@compiled
def product(a, b):
    return np.dot(a, b)

twice(3)
print("scipy.linalg" in sys.modules)
print(product(np.ones((2, 3)), np.ones((3, 2))).tolist())
"""


def test_scipy_is_imported_with_the_first_call_of_a_kernel_that_needs_it(tmp_path: Path) -> None:
    script = tmp_path / "bare.py"
    script.write_text(BARE)
    # The second time from the machine code on disk.
    for _ in range(2):
        told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert told.stdout.splitlines() == ["False", "[[3.0, 3.0], [3.0, 3.0]]"], told.stderr
