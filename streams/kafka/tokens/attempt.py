"""One login by token by hand: neither client library reports that a broker refuses a token.

aiokafka takes the refusal for a success, and librdkafka for a closed connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

_CLIENT: Final = struct.pack(">h", 9) + b"kinstream"
_MECHANISM: Final = b"OAUTHBEARER"
#: Requests (key, version, correlation id): SaslHandshake 1, SaslAuthenticate 0.
_HANDSHAKE: Final = struct.pack(">hhi", 17, 1, 3) + _CLIENT + struct.pack(">h", len(_MECHANISM)) + _MECHANISM
_AUTHENTICATE: Final = struct.pack(">hhi", 36, 0, 4) + _CLIENT


def refusal(ask: Callable[[bytes], bytes], token: str, extensions: Mapping[str, str]) -> str | None:
    """A broker's answer if it refuses the token; None if it accepts it, or does not answer.

    Parameters
    ----------
    ask : sends a request without its size; returns the answer with it, empty if there is none.
    """
    found = ask(_HANDSHAKE)
    if len(found) < 10:
        return None
    if int.from_bytes(found[8:10], "big"):
        return "unsupported mechanism"
    # RFC 7628, section 3.1; a broker answers a refused token with JSON (section 3.2.2).
    pairs = "".join(f"\x01{name}={text}" for name, text in extensions.items())
    sent = f"n,,\x01auth=Bearer {token}{pairs}\x01\x01".encode()
    found = ask(_AUTHENTICATE + struct.pack(">i", len(sent)) + sent)
    if len(found) < 12:
        return None
    code, length = struct.unpack(">hh", found[8:12])
    told = found[12 : 12 + max(length, 0)]
    size = found[12 + max(length, 0) :][:4]
    if code == 0 and int.from_bytes(size, "big", signed=True) <= 0:
        return None
    return (told or found[16 + max(length, 0) :]).decode(errors="replace")
