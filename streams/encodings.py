"""What bytes are that should be text in UTF-8."""

from __future__ import annotations

import codecs
from typing import Final

#: The first bytes of encodings and of other kinds of files; the longer ones first.
_BEGINNINGS: Final = (
    (codecs.BOM_UTF32_LE, "text in UTF-32"),
    (codecs.BOM_UTF32_BE, "text in UTF-32"),
    (codecs.BOM_UTF16_LE, "text in UTF-16"),
    (codecs.BOM_UTF16_BE, "text in UTF-16"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"PK\x03\x04", "a zip archive, as .xlsx and .npz are"),
    (b"PAR1", "Parquet"),
    (b"\x93NUMPY", "an array of numpy (.npy)"),
)
#: Bytes that are enough to tell.
HEAD: Final = 64


def not_utf8(head: bytes) -> str | None:
    r"""What a file with this beginning is, if that is surely something else than text in UTF-8; None otherwise.

    Examples
    --------
    >>> not_utf8("a,b".encode("utf-16")), not_utf8("a,b".encode("utf-16-le")), not_utf8("a,b".encode("utf-8-sig"))
    ('text in UTF-16', 'text in UTF-16', None)
    """
    for beginning, what in _BEGINNINGS:
        if head.startswith(beginning):
            return what
    # Without a mark at its start, UTF-16 of most languages has every second byte zero.
    even, odd = head[0:HEAD:2], head[1:HEAD:2]
    if len(head) > 1 and (not any(odd) or not any(even)):
        return "text in UTF-16"
    return None


def advice(what: str) -> str:
    """What to do about it."""
    if what.startswith("text"):
        return f"it is {what}; write it in UTF-8: iconv -f {what.split()[-1]} -t UTF-8"
    return f"it is {what}, whatever its name says"
