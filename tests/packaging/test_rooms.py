"""Nothing imports in a circle, and rooms and files stay small enough to find one's way."""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import kinstream

FOLDER = Path(kinstream.__file__).parent
MOST_FILES, MOST_LINES = 14, 500


def circle(imported: dict[str, set[str]]) -> list[str] | None:
    """The names of a circle, each imported by the next; None if there is none."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def imports() -> dict[str, set[str]]:
    """What each file imports from others, also in functions and for types only."""
    graph = grimp.build_graph("kinstream", exclude_type_checking_imports=False, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def room(name: str) -> str:
    """The folder within a package that a file lies in; a file of a package's top is a room of its own."""
    folder = name.rpartition(".")[0]
    return folder if folder.count(".") > 1 and not (FOLDER.parent / name.replace(".", "/")).is_dir() else name


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) or ()) == {"a", "b", "c"}


def test_no_file_imports_in_a_circle() -> None:
    found = imports()
    # The package imports one of these for types only, the other in a function.
    assert {"kinstream.learners.sklearn", "kinstream.streams.extras"} <= found["kinstream"]
    assert circle(found) is None


def test_no_room_imports_in_a_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for name, imported in imports().items():
        rooms.setdefault(room(name), set()).update({room(one) for one in imported} - {room(name)})
    assert rooms["kinstream.learners.oahu"]
    assert circle(rooms) is None


def files() -> list[Path]:
    """The Python files of all packages."""
    found = [file for package in FOLDER.iterdir() if package.is_dir() for file in package.rglob("*.py")]
    assert len(found) > 300
    return found


def test_a_room_has_few_files() -> None:
    rooms = Counter(file.parent for file in files() if file.name != "__init__.py")
    assert {str(folder): number for folder, number in rooms.items() if number > MOST_FILES} == {}


def test_a_file_is_short() -> None:
    lengths = {str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in files()}
    assert {file: lines for file, lines in lengths.items() if lines > MOST_LINES} == {}
