"""Corpora by name, with the vectors of their queries and items; what was embedded once is kept.

| name | a query | its one item | of |
|---|---|---|---|
| scientific | first paragraph of a docstring | the rest, and the code | numpy, scipy, scikit-learn |
| mathematics | the same | the same | sympy, networkx, astropy |
| tables | the same | the same | pandas, matplotlib, xarray, dask, statsmodels, scikit-image |
| services | first sentence of an operation's description: prose | the rest of it | botocore |
| packages | synopsis of a package: prose, almost all found at once | its description | the lists of apt |

At most 4,000 of each, drawn at random. `KINSTREAM_DATA` holds the first one as `minilm_docs`. What is made here is kept
in its folder `minilm`, or in `.cache/minilm` where that cannot be written. Making one takes 3 to 7 minutes.

Example: python -m benchmarks.real_embeddings.corpora mathematics services
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import arrays
from kinstream.producers.simulated.documentation import Documented, functions_of
from kinstream.producers.simulated.minilm import Encoder
from kinstream.streams.errors import PackageMissing

Vectors = NDArray[np.float32]
Texts = dict[str, str]

MOST: Final = 4_000
#: Behind the name of a corpus.
COMMON: Final = " common"
#: Tokens that are read of a query and of an item.
QUERY_TOKENS, ITEM_TOKENS = 48, 96
#: Characters of an item's text that count.
LONGEST: Final = 4_000
#: Least characters of a text that says something.
QUERY_CHARACTERS, ITEM_CHARACTERS = 25, 150
_FIRST_SENTENCE: Final = re.compile(rf"(.{{{QUERY_CHARACTERS},300}}?[.!]) (?=[A-Z])(.{{{ITEM_CHARACTERS},}})")
DOCSTRINGS: Final = {
    "scientific": ("numpy", "scipy", "sklearn"),
    "mathematics": ("sympy", "networkx", "astropy"),
    "tables": ("pandas", "matplotlib", "xarray", "dask", "statsmodels", "skimage"),
}
#: Where apt keeps its lists, and what the names of those with descriptions end with.
APT: Final = Path("/var/lib/apt/lists")
_DESCRIPTIONS: Final = "main_i18n_Translation-en"
_PARTS: Final = re.compile(r"-(dev|doc|dbg|data|common)$")


class Missing(SystemExit):
    """A package or a file that a corpus needs is not there; the text says which and where it comes from."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Row i of `items` answers row i of `queries`; both (n, 384) float32 of length 1.

    Parameters
    ----------
    alike : cosine from which two items are near-duplicates.
    """

    name: str
    queries: Vectors
    items: Vectors
    alike: float = 0.85


@cache
def opened(name: str) -> Corpus:
    """A corpus by name; " common" behind it gives `with_common` of it.

    Raises
    ------
    Missing : a package or a file that it is made of is not there.
    """
    if name.endswith(COMMON):
        return with_common(opened(name.removesuffix(COMMON)))
    found = arrays("minilm_docs") if name == "scientific" else None
    found = found or _kept(name) or _made(name)
    return Corpus(name, _unit(found["queries"]), _unit(found["items"]))


def with_common(corpus: Corpus, length: float = 1.7) -> Corpus:
    """A corpus to whose embeddings a vector of some length was added, as many encoders have one in all they make.

    What ranks is nearly the same. With a length of 1.7, two texts have cosines near .75.
    """
    drawn = np.random.default_rng(5).normal(size=corpus.items.shape[1])
    common = length / float(np.linalg.norm(drawn)) * drawn
    alike = (corpus.alike + length**2) / (1.0 + length**2)
    queries, items = (_unit(rows + common) for rows in (corpus.queries, corpus.items))
    return Corpus(corpus.name + COMMON, queries, items, alike)


def made_up(seed: int, missing: float, n: int = 1_200, d: int = 24) -> Corpus:
    """Items in topics, and queries near them that have lost a part of four directions: small, and made at once.

    Parameters
    ----------
    missing : how much of the four directions queries lack: of 1.6 there is much to learn, of .7 little.
    """
    draw = np.random.default_rng(seed)
    topics = draw.normal(size=(60, d))
    items = topics[draw.integers(60, size=n)] + 0.7 * draw.normal(size=(n, d))
    lost = np.linalg.qr(draw.normal(size=(d, 4)))[0]
    queries = items - missing * (items @ lost) @ lost.T + 0.3 * draw.normal(size=(n, d))
    queries, items = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, items))
    return Corpus("made up", queries.astype(np.float32), items.astype(np.float32))


def texts(name: str) -> Texts:
    """Item by query; of several with one query, or with one item, the first."""
    every: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "services": _operations,
        "packages": _descriptions,
    }
    pairs = every[name]() if name in every else _functions(DOCSTRINGS[name])
    every_item: Texts = {}
    for query, item in pairs:
        every_item.setdefault(query, item)
    queries = list(every_item)
    some = [queries[row] for row in np.random.default_rng(0).permutation(len(queries))[:MOST]]
    by_item: Texts = {}
    for query in some:
        by_item.setdefault(every_item[query], query)
    return {query: item[:LONGEST] for item, query in by_item.items()}


def functions_in(package: str) -> list[Documented]:
    """What a package that is installed says of its functions.

    Raises
    ------
    Missing : it is not installed.
    """
    return [*functions_of(_folder(package), package)]


def _functions(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for package in packages:
        yield from ((one.query, one.item) for one in functions_in(package))


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise Missing(f"{package} is not installed: pip install 'kinstream[benchmarks]'")
    return Path(spec.origin).parent


def _operations() -> Iterator[tuple[str, str]]:
    """Descriptions of the operations of web services."""
    for path in sorted((_folder("botocore") / "data").glob("*/*/service-2.json*")):
        data = path.read_bytes()
        model = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        for operation in model["operations"].values():
            text = " ".join(
                html.unescape(re.sub(r"<[^>]+>", " ", operation.get("documentation", ""))).split()
            )
            parts = _FIRST_SENTENCE.match(text)
            if parts:
                yield parts[1], parts[2]


def _descriptions() -> Iterator[tuple[str, str]]:
    """Synopses and descriptions of Debian's packages."""
    folders = (Path(os.environ.get("KINSTREAM_DATA", APT)), APT)
    paths = [path for folder in folders for path in sorted(folder.glob(f"*{_DESCRIPTIONS}"))]
    if not paths:
        raise Missing(
            f"no file *{_DESCRIPTIONS} under {APT} or KINSTREAM_DATA: apt-get update leaves it there where"
            " Acquire::Languages is en and Acquire::GzipIndexes is false"
        )
    # The largest is that of the release: those of its updates and of security have few.
    largest = max(paths, key=lambda path: path.stat().st_size)
    for record in largest.read_text(encoding="utf-8").split("\n\n"):
        name = re.search(r"^Package: (.*)", record, re.M)
        text = re.search(r"^Description(?:-en)?: (.*(?:\n .*)*)", record, re.M)
        if name is None or text is None or _PARTS.search(name[1]):
            continue
        synopsis, _, rest = text[1].partition("\n")
        description = " ".join(rest.replace("\n .", " ").split())
        if len(synopsis) >= QUERY_CHARACTERS and len(description) >= ITEM_CHARACTERS:
            yield synopsis, description


def _folders() -> Iterator[Path]:
    """Where embeddings may lie, the preferred place first."""
    if "KINSTREAM_DATA" in os.environ:
        yield Path(os.environ["KINSTREAM_DATA"]) / "minilm"
    yield Path(".cache") / "minilm"


def _kept(name: str) -> dict[str, NDArray[Any]] | None:
    for path in (folder / f"{name}.npz" for folder in _folders()):
        if path.exists():
            with np.load(path, allow_pickle=False) as found:
                return dict(found)
    return None


def _made(name: str) -> dict[str, NDArray[Any]]:
    """Embed a corpus and keep it."""
    try:
        encode, found = Encoder(), texts(name)
    except PackageMissing as error:
        raise Missing(str(error)) from error
    made = {
        "queries": encode([*found], QUERY_TOKENS).astype(np.float16),
        "items": encode([*found.values()], ITEM_TOKENS).astype(np.float16),
    }
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"{name}.npz", **made)  # type: ignore[arg-type]
            break
        except OSError:
            continue
    return dict(made)


def _unit(rows: NDArray[Any]) -> Vectors:
    wide = np.asarray(rows, np.float32)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True), np.float32)


def main() -> None:
    """Make corpora, and print how well their embeddings find the answers."""
    from benchmarks.real_embeddings.trial import ndcg

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*DOCSTRINGS, "services", "packages"]
    parser.add_argument("names", nargs="*", choices=[*names, []], default=names)
    for name in parser.parse_args().names:
        found = opened(name)
        n = len(found.queries)
        print(f"{name}: {n} texts, NDCG@10 {ndcg(found.queries, found.items, np.arange(n)):.3f}", flush=True)


if __name__ == "__main__":
    main()
