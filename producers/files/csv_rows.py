"""The rows of a CSV file as bytes, for a parser that takes a quote without an end for text up to the file's end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_ENDS: Final = rb"\r\n|\n|\r(?!\Z)"
#: One in a whole row.
_END: Final = re.compile(rb"\r\n?|\n")
_BOM: Final = rb"\xef\xbb\xbf"
#: A quoted value without its last quote. Before Python 3.11.5 a possessive group fails if a part of it can match in two
#: ways (gh-106052); this one cannot.
_QUOTED: Final = rb'"[^"]*+(?:""[^"]*+)*+'


class CsvRows:
    """A stream whose reads end where a row ends, and which ends before a row with a quote that is wrong.

    A quote at the beginning of a value ends with the value, but for spaces. In other values quotes are text.

    Parameters
    ----------
    stream : the bytes of the file.
    """

    def __init__(self, stream: Any, delimiter: str) -> None:
        spaces = b" " if delimiter == "\t" else b" \t"
        stop = rb"\r\n" + re.escape(delimiter.encode())
        text = rb'[^"\r\n]++|(?<=[^%b])(?<!\A%b)"' % (stop, _BOM)
        quoted = rb'%b"(?=[%b]*+[%b])' % (_QUOTED, spaces, stop)
        #: A part of a row; else the end of one (group 1); else what is no part of one (group 2).
        self._tokens: Final = re.compile(rb'%b|%b|(%b)|(["\r])' % (text, quoted, _ENDS))
        self._quoted: Final = re.compile(_QUOTED)
        self._top: Final = re.compile(rb"(?:%b)?([%b\r\n]*+)" % (_BOM, spaces))
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
            if self._is_top and (top := self._top.match(found)) is not None:
                blank = top[1]
                found = found[top.start(1) + max(blank.rfind(b"\r"), blank.rfind(b"\n")) + 1 :]
            if found:
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
            first = 0
            for end in self._ends(found + b" "):
                yield found[first:end]
                first = end

    def _ends(self, data: bytes) -> Iterator[int]:
        """Where whole rows end, up to the first wrong one."""
        for token in self._tokens.finditer(data):
            if token.lastindex == 1:
                yield token.end()
            elif token.lastindex == 2:
                return

    def _last_end(self, data: bytes) -> int:
        if b'"' in data:
            return max(self._ends(data), default=0)
        return max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1

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
            end = self._last_end(data)
            if not more and end < len(data):
                self.fault = self._fault(data[end:], size)
        self._rest = data[end:]
        return data[:end]

    def _fault(self, data: bytes, size: int) -> str:
        """What is wrong with the first row of these."""
        wrong = (token.start() for token in self._tokens.finditer(data) if token.lastindex == 2)
        quoted = self._quoted.match(data, next(wrong, len(data)))
        if quoted is None:
            return f": it is longer than {size} bytes"
        if quoted.end() == len(data):
            return ": a quote has no end" + (f" within {size} bytes" if len(data) >= size else "")
        return ": a quote ends before its value does; within quotes, a quote is written twice"
