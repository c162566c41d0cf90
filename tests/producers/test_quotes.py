"""A wrong quote in a CSV file is an error with its row; the rows before it are read, and none of those after it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from kinstream.producers.files.cells import TableCells
from kinstream.producers.files.csv import BLOCK_BYTES, CsvFile
from kinstream.producers.files.csv_rows import CsvRows
from kinstream.producers.files.tables import lines_of
from kinstream.streams.errors import SourceError

NO_END = "a quote has no end"
EARLY = "a quote ends before its value does; within quotes, a quote is written twice"


def read(path: Path) -> tuple[list[tuple[str, ...]], str]:
    """The rows of a file up to its error, and that."""
    rows: list[tuple[str, ...]] = []
    try:
        file = CsvFile(path)
        with lines_of(file):
            rows.extend(cells for _, cells in TableCells(file).rows(file.names, 0))
    except SourceError as error:
        return rows, str(error).removeprefix(f"{path}: ")
    return rows, ""


@pytest.mark.parametrize(
    ("text", "before", "told"),
    [
        ('id,note\na,1\nb,"two\nc,3\n', 1, f"row 2: {NO_END}"),
        ('id,note\na,1\n"b,2\nc,3\n', 1, f"row 2: {NO_END}"),
        ('id,note\n\n \na,1\r\n\r\nb,"', 1, f"row 2 (line 6): {NO_END}"),
        ('id,note\na,"1\n\n"\nb,"2""\nc,3\n', 1, f"row 2 (line 5): {NO_END}"),
        ('id,note\na,1\nb,"two\nc,"three"\nd,"4"\n', 1, f"row 2: {EARLY}"),
        ('id,note\na,1\nb,"5" disk"\nd,4\n', 1, f"row 2: {EARLY}"),
        ('id\na\n"b\nc\n', 1, f"row 2: {NO_END}"),
        ('id,"note\na,1\n', 0, f"the first row: {NO_END}"),
        ('id,note\n"a,1\n', 0, f"row 1: {NO_END}"),
        ('id,note\ra,1\rb,"2\rc,3\r', 1, f"row 2: {NO_END}"),
        ('id,note\n\u00a0\na,1\nb,"2', 1, f"row 2 (line 4): {NO_END}"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv"])
def test_a_wrong_quote_is_told_with_its_row(
    tmp_path: Path, text: str, before: int, told: str, ending: str
) -> None:
    path = tmp_path / f"rows{ending}"
    data = text.replace(",", "\t" if ending == ".tsv" else ",").encode()
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    rows, error = read(path)
    assert (len(rows), error) == (before, told)


def test_a_quote_without_an_end_in_a_large_file_is_told_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,note\na,1\n"b,2\n' + b"c,3\n" * (BLOCK_BYTES // 4))
    assert read(path) == ([("a", "1")], f"row 2: {NO_END} within {BLOCK_BYTES} bytes")


def test_quotes_that_are_text_and_quotes_that_are_closed_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"i\nd",note\n3" disk,n"n\n"a,\r\nb","c ""d"""\n"e" ,"f"\t\n"",""\n "g",h\n"i","j"'
    )
    assert read(path) == (
        [('3" disk', 'n"n'), ("a,\r\nb", 'c "d"'), ("e ", "f\t"), ("", ""), (' "g"', "h"), ("i", "j")],
        "",
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [8, 9, 64])
def test_the_line_of_a_row_counts_every_end_of_a_line(end: str, size: int) -> None:
    text = end.join(["", "a,1", "", '"b', 'c"', "d", ""]).encode()
    lines = [CsvRows(io.BytesIO(text), ",").line(row, 2, size) for row in range(4)]
    assert lines == [2, 4, 6, 7]
