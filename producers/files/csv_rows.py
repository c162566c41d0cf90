"""The rows of a CSV file as bytes, for a parser that takes a quote without an end for text up to the file's end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_ENDS: Final = rb"\r\n|\n|\r(?!\Z)"
_END: Final = re.compile(_ENDS)
_BOM: Final = rb"\xef\xbb\xbf"
#: A quoted value without its last quote.
_QUOTED: Final = rb'"(?:[^"]++|"")*+'


class CsvRows:
    """A stream whose reads end where a row ends, and which ends before a row with a quote that is wrong.

    A quote at the beginning of a value ends with the value, but for spaces. In other values quotes are text.

    Parameters
    ----------
    stream : the bytes of the file.
    """

    def __init__(self, stream: Any, delimiter: str) -> None:
        blank = rb"[ ]*+" if delimiter == "\t" else rb"[ \t]*+"
        stop = rb"\r\n" + re.escape(delimiter.encode())
        text = rb'[^"\r\n]++|(?<=[^%b])(?<!\A%b)"' % (stop, _BOM)
        quoted = rb'%b"(?=%b[%b])' % (_QUOTED, blank, stop)
        row = rb"(?:%b|%b)*+(?:%b)" % (text, quoted, _ENDS)
        self._row: Final = re.compile(row)
        self._rows: Final = re.compile(rb"(?:%b)*+" % row)
        self._good: Final = re.compile(rb"(?:%b|%b)*+" % (text, quoted))
        self._quoted: Final = re.compile(_QUOTED)
        self._top: Final = re.compile(rb"\A(?:%b)?(?:%b(?:%b))*+" % (_BOM, blank, _ENDS))
        self._stream = stream
        self._rest = b""
        self._is_top = True
        #: What is wrong with the row before which the stream ends.
        self.fault: str | None = None

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        """Whole rows of up to `size` bytes, without lines of spaces on top: the parser would take one for a header."""
        while found := self._whole(size):
            if not self._is_top or (found := self._top.sub(b"", found)):
                self._is_top = False
                return found
        return b""

    def line(self, row: int, width: int, size: int) -> int | None:
        """The line at which a row begins, also that before which the stream ends.

        Parameters
        ----------
        row : its number, in which a header counts.
        width : columns of the file. A line of spaces is a row if that is one.
        size : bytes to read at a time.
        """
        line = 1
        for text in self._each(size):
            if text.decode(errors="replace").strip() or (width == 1 and text.strip(b"\r\n")):
                if not row:
                    return line
                row -= 1
            line += len(_END.findall(text))
        return None if row else line

    def _each(self, size: int) -> Iterator[bytes]:
        while found := self._whole(size):
            for row in self._row.finditer(found):
                yield row[0]

    def _whole(self, size: int) -> bytes:
        data, end = self._rest, 0
        while not end and self.fault is None:
            if len(data) >= size:
                self.fault = self._fault(data, size)
                break
            more = self._stream.read(size - len(data))
            if not more and not data:
                break
            data += more or b"\n"
            found = self._rows.match(data)
            end = 0 if found is None else found.end()
            if not more and end < len(data):
                self.fault = self._fault(data[end:], size)
        self._rest = data[end:]
        return data[:end]

    def _fault(self, data: bytes, size: int) -> str:
        """What is wrong with the first row of these."""
        good = self._good.match(data)
        quoted = self._quoted.match(data, 0 if good is None else good.end())
        if quoted is None:
            return f": it is longer than {size} bytes"
        if quoted.end() == len(data):
            return ": a quote has no end" + (f" within {size} bytes" if len(data) >= size else "")
        return ": a quote ends before its value does; within quotes, a quote is written twice"
