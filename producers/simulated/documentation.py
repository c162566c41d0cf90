"""A search corpus that every installation holds: what Python packages say about their functions and classes.

A query is the first paragraph of a docstring. Its one item is the rest of the docstring, the names of the arguments and
the code, without the function's name. Items and queries are of numpy, scipy and scikit-learn. The embedder has seen
Python's standard library alone, as an encoder has not seen a user's catalogue; or it is all-MiniLM-L6-v2, an encoder
that people use.

The extra `learn` has all packages that this needs. `kinstream demo` installs it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.simulated.minilm import Encoder
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.extras import importing

Vectors = NDArray[np.float32]
Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

#: Whose functions are searched.
PACKAGES: Final = ("numpy", "scipy", "sklearn")
#: Characters of a text that are read, and tokens of a query and of an item that all-MiniLM-L6-v2 reads.
LONGEST: Final = 4_000
TOKENS: Final = (32, 64)
#: Folders that hold no documentation for users.
_LEFT_OUT: Final = frozenset(
    {"tests", "test", "site-packages", "idlelib", "lib2to3", "_vendored", "externals"}
)


@dataclass(frozen=True, slots=True)
class Documented:
    """A function or a class: where it is, what its first paragraph says (the query), and all else (the item)."""

    name: str
    query: str
    item: str


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Functions with the vectors of their queries and items: row i of `queries` is answered by row i of `items`.

    Parameters
    ----------
    functions : n of them, in the order of packages, files and lines.
    queries, items : (n, d) of length 1.
    """

    functions: tuple[Documented, ...]
    queries: Vectors
    items: Vectors


def functions_of(folder: Path, package: str) -> Iterator[Documented]:
    """What is public and documented under a folder, if the docstring goes on behind its first paragraph."""
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder)
        if _LEFT_OUT & set(inner.parts[:-1]):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            # Such as a file for another version of Python.
            continue
        lines = text.splitlines()
        module = ".".join((package, *inner.with_suffix("").parts)).removesuffix(".__init__")
        for node in _statements(tree):
            if isinstance(node, Node) and not node.name.startswith("_"):
                found = _documented(node, lines, module)
                if found is not None:
                    yield found


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """In the order of `ast.walk`, which also goes through what is inside of statements: nine tenths of all nodes."""
    waiting: deque[ast.AST] = deque([tree])
    while waiting:
        yield (node := waiting.popleft())
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(node, field, ()))


def _documented(node: Node, lines: list[str], module: str) -> Documented | None:
    query, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
    query = " ".join(query.split())
    if not query or not rest.strip():
        return None
    arguments = []
    if not isinstance(node, ast.ClassDef):
        given = node.args
        arguments = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    # The docstring is the first statement of the body.
    code = "\n".join(lines[(node.body[0].end_lineno or 0) : node.end_lineno])
    item = "\n".join([rest.strip(), " ".join(arguments), code])
    return Documented(f"{module}.{node.name}", query[:LONGEST], item[:LONGEST])


def searched() -> tuple[Documented, ...]:
    """The functions of `PACKAGES` that are installed; of several with one query the first."""
    found: dict[str, Documented] = {}
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for one in functions_of(Path(spec.origin).parent, package):
            found.setdefault(one.query, one)
    return tuple(found.values())


def embedder(dimensions: int = 384, seed: int = 0) -> Embedder:
    """TF-IDF of character 3- to 5-grams and a truncated SVD, fitted on the standard library."""
    texts = [f"{one.query}\n{one.item}" for one in functions_of(Path(sysconfig.get_path("stdlib")), "std")]
    return Embedder(texts, dimensions, seed)


class Embedder:
    """Texts to vectors of length 1.

    Parameters
    ----------
    texts : what it is fitted on.
    dimensions : of its vectors.
    seed : of the randomised decomposition.

    Raises
    ------
    SettingsError
        scikit-learn is not installed: the extra `learn` has it.
    """

    def __init__(self, texts: Iterable[str], dimensions: int = 384, seed: int = 0) -> None:
        with importing("the embedder of the documentation"):
            from sklearn.decomposition import TruncatedSVD
            from sklearn.feature_extraction.text import TfidfVectorizer
        # No n-gram goes over the bounds of a word, and most words have come before.
        grams = cache(TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)).build_analyzer())

        def analyze(text: str) -> Iterator[str]:
            return chain.from_iterable(map(grams, text.lower().split()))

        self._weights = TfidfVectorizer(analyzer=analyze, min_df=3, max_features=60_000, sublinear_tf=True)
        self._reduced = TruncatedSVD(dimensions, random_state=seed, n_iter=3)
        weighted = self._weights.fit_transform(texts)
        # Several threads take two to three times as long where other processes work, too.
        with one_blas_thread():
            self._reduced.fit(weighted)

    def __call__(self, texts: Iterable[str]) -> Vectors:
        """Vectors (n, d) of texts."""
        found: NDArray[Any] = self._reduced.transform(self._weights.transform(texts))
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(found / np.where(length > 0.0, length, 1.0), np.float32)


def corpus(dimensions: int = 384, seed: int = 0) -> Corpus:
    """The functions that are searched, with their vectors."""
    functions, embed = searched(), embedder(dimensions, seed)
    queries, items = embed([one.query for one in functions]), embed([one.item for one in functions])
    return Corpus(functions, queries, items)


def encoded_corpus(encode: Encoder | None = None) -> Corpus:
    """The functions that are searched, with their vectors by all-MiniLM-L6-v2: 7 minutes on one thread.

    They are kept in the user's folder for caches, so that the next call takes a second.

    Parameters
    ----------
    encode : the encoder, if there is one; else it is loaded where it is needed.

    Raises
    ------
    kinstream.streams.errors.PackageMissing
        The extra `minilm` is not installed.
    """
    functions = searched()
    texts = [one.query for one in functions], [one.item for one in functions]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = root / "kinstream" / f"documentation-{digest}.npz"
    if kept.exists():
        with np.load(kept, allow_pickle=False) as found:
            return Corpus(functions, found["queries"], found["items"])
    encode = encode or Encoder()
    queries, items = (encode(some, most) for some, most in zip(texts, TOKENS, strict=True))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as file:
        np.savez(file, queries=queries, items=items)
    os.replace(file.name, kept)
    return Corpus(functions, queries, items)
