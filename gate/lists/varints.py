"""Whole numbers of any size in as few bytes as they need: seven bits a byte, the lowest first (LEB128)."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """The bytes of a number, 0 or more."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place after it.

    Raises
    ------
    IndexError : the bytes end before the number does.
    """
    number = shift = 0
    while data[at] & 128:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1
