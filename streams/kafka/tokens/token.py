"""A token, and what can be read of it."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any


class Away(Exception):
    """No token could be fetched for now; the text says why. A later attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token for the brokers.

    Parameters
    ----------
    text : what is sent; a secret, which is not printed.
    fetched, expires : seconds since 1970.
    """

    text: str = field(repr=False)
    fetched: float
    expires: float

    def claims(self) -> dict[str, Any]:
        """The claims of a JSON Web Token (RFC 7519), whose signature is not checked; empty for another token.

        They are for messages and for the time of expiry. Only brokers decide whether a token is valid.
        """
        return claims_of(self.text)

    def described(self) -> str:
        """What a broker checks, in words: audience, issuer, subject, expiry."""
        known = self.claims()
        parts = [
            f"{name} {known[claim]!r}"
            for name, claim in (
                ("audience", "aud"),
                ("issuer", "iss"),
                ("subject", "sub"),
                ("scope", "scope"),
            )
            if claim in known
        ]
        until = known.get("exp")
        left = (until if isinstance(until, int | float) else self.expires) - time.time()
        parts.append(f"expired {-left:.0f} s ago" if left <= 0 else f"expires in {left:.0f} s")
        return ", ".join(parts)


def claims_of(text: str) -> dict[str, Any]:
    """The claims of a JSON Web Token; empty for any other text."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
