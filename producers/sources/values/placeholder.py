"""The placeholder of a value that has not changed and that the writer therefore does not have.

PostgreSQL keeps long values outside of their rows, and its log repeats none that an update leaves as it is. Debezium
writes a text in its place (`unavailable.value.placeholder`), in the type of the column: text, bytes, or a list of the
text, of its letters or of the numbers of its bytes, which have a sign in Java.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from kinstream.streams.errors import BadRecord, Reason, SettingsError

#: The fate of a record that is left out for it.
UNCHANGED: Final = "unchanged"
#: Before the digits of a placeholder of bytes, in Debezium's setting.
_HEX: Final = "hex:"


class Unchanged(BadRecord):
    """A value that the event needs has not changed: there is nothing to apply."""

    def __init__(self) -> None:
        super().__init__(Reason.BAD_SHAPE, "a value has not changed, and is not in the record")


class Placeholder:
    """Recognises the placeholder in each of its forms.

    Parameters
    ----------
    text : of `unavailable.value.placeholder`.

    Raises
    ------
    SettingsError : it begins with hex: and is no UTF-8 in hexadecimal digits.
    """

    def __init__(self, text: str) -> None:
        try:
            data = bytes.fromhex(text.removeprefix(_HEX)) if text.startswith(_HEX) else text.encode()
            text = data.decode()
        except ValueError as error:
            raise SettingsError(
                f"unavailable_value must be text, or hex: and the bytes of a text: {error}"
            ) from error
        self._bytes = data
        encoded = (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex())
        texts = {text, *encoded, *(one.rstrip("=") for one in encoded)}
        self._texts = frozenset(texts)
        self._needles = tuple({*(one.encode() for one in texts), json.dumps(text)[1:-1].encode()})
        self._lists: dict[int, tuple[list[Any], ...]] = {}
        signed = [byte - 256 if byte > 127 else byte for byte in data]
        for form in ([text], list(text), list(data), signed):
            self._lists[len(form)] = (*self._lists.get(len(form), ()), form)

    def may_be_in(self, value: bytes) -> bool:
        """Whether a record may hold its text; far quicker than to look at its fields."""
        return any(needle in value for needle in self._needles)

    def __eq__(self, value: object) -> bool:
        if type(value) is str:
            return value in self._texts
        if type(value) is list:
            return any(value == form for form in self._lists.get(len(value), ()))
        if type(value) is dict:
            return len(value) == 1 and all(key in self._texts and value[key] in self._texts for key in value)
        return value == self._bytes

    __hash__ = None  # type: ignore[assignment]
