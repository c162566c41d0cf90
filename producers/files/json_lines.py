"""JSON lines: one object per line, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from kinstream.producers.files.cells import CellFile, TableCells
from kinstream.producers.files.tables import ending, existing, open_table
from kinstream.producers.files.text import refuse_other_text
from kinstream.streams.encodings import HEAD
from kinstream.streams.errors import BadRecord, SourceError
from kinstream.streams.records.codec.json_text import check_text, unique

#: Longest line, uncompressed, and largest number of fields over all objects.
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_FIELDS: Final = 100_000
JSON_ENDINGS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


def open_cells(path: Path) -> CellFile:
    """Open a file of columns, or of JSON lines, by its ending.

    Raises
    ------
    SourceError : it does not exist, has an unknown kind, or cannot be read.
    """
    if ending(path, JSON_ENDINGS):
        return JsonLines(path)
    return TableCells(open_table(str(path), *JSON_ENDINGS[:2]))


class JsonLines:
    """A file of JSON objects as rows. Blank lines are skipped but counted, so a row's number is that of its line.

    Raises
    ------
    SourceError : there is no such file, or a line is not a JSON object.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = existing(path)
        self.text_is_typed: Final = True
        self.reading: Final[dict[str, Any]] = {"json lines": 1}
        #: Fields of the objects, in order of first appearance.
        self.names: Final = list(self._fields())

    def _fields(self) -> dict[str, None]:
        found: dict[str, None] = {}
        for number, body in self.objects(0):
            found.update(dict.fromkeys(body))
            if len(found) > MAX_FIELDS:
                raise SourceError(f"{self.path}: row {number + 1}: more than {MAX_FIELDS} fields so far")
        return found

    def line(self, row: int) -> int | None:
        return None

    def rows(self, columns: Sequence[str], first: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        for number, body in self.objects(first):
            yield number, tuple(body.get(name) for name in columns)

    def objects(self, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each line from `first` on, and its object.

        Raises
        ------
        SourceError : a line is not a JSON object.
        """
        number = first
        try:
            with self._stream() as stream:
                for line in islice(self._lines(stream), first, None):
                    if line.strip():
                        yield number, self._parsed(line, number)
                    number += 1
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self.path}: row {number + 1}: {error}") from error

    def _lines(self, stream: gzip.GzipFile | BinaryIO) -> Iterator[bytes]:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            if not number:
                refuse_other_text(self.path, line[:HEAD])
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise SourceError(f"{self.path}: row {number}: longer than {MAX_LINE_BYTES} bytes")
            yield line

    def _stream(self) -> gzip.GzipFile | BinaryIO:
        packed = self.path.name.lower().endswith(".gz")
        return gzip.open(self.path) if packed else self.path.open("rb")

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            # Some editors begin a file with a byte order mark.
            body = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique)
            check_text(body)
        except UnicodeDecodeError as error:
            raise SourceError(f"{self.path}: row {number + 1}: not valid UTF-8: {error}") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.path}: row {number + 1}: not JSON: {error}") from error
        except BadRecord as error:
            raise SourceError(f"{self.path}: row {number + 1}: {error.detail}") from error
        if not isinstance(body, dict):
            raise SourceError(f"{self.path}: row {number + 1}: not a JSON object")
        return body
