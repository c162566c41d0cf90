"""How many values a record of an Avro schema may hold: found from the schema, before a record is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Types within types.
MAX_DEPTH: Final = 64
#: Values of one record; each takes up to some hundred bytes when it is decoded.
MAX_VALUES: Final = 5_000_000
#: Values of a record beside those of its lists and maps.
_MAX_FLAT: Final = 100_000
#: Values that one byte of a list may stand for, tried in this order.
_RATES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: The fewest bytes of a value.
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}


class UnboundedSchema(Exception):
    """Records of the schema could take any amount of time or memory."""


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """A bound of the values of a record: `flat` of them, and `rate` for each of its bytes."""

    flat: float
    rate: float

    def most_values(self, size: int) -> float:
        """The most values of a record of that many bytes."""
        return self.flat + self.rate * size


def schema_size(schema: Any, named: Mapping[str, Any]) -> SchemaSize:
    """The bound for a parsed schema.

    Parameters
    ----------
    named : the types that other schemas define, by full name.

    Raises
    ------
    UnboundedSchema : a type holds itself, types are too deep, or a list has elements of (almost) no bytes.
    """
    for rate in _RATES:
        walk = _Walk(rate, named)
        flat = walk.excess(schema, ())
        if walk.fits:
            break
    else:
        raise UnboundedSchema("a list of values that take no bytes, or almost none, is not supported")
    if flat > _MAX_FLAT:
        raise UnboundedSchema(f"more than {_MAX_FLAT} values without a byte are not supported")
    return SchemaSize(max(flat, 0.0), rate)


class _Walk:
    """Finds, at a rate, the values of each type above those that its own bytes account for."""

    def __init__(self, rate: float, named: Mapping[str, Any]) -> None:
        self._rate = rate
        self._named = named
        self._known: dict[str, float] = {}
        #: Whether the elements of every list account for their values.
        self.fits = True

    def excess(self, schema: Any, above: tuple[str | None, ...]) -> float:
        if len(above) > MAX_DEPTH:
            raise UnboundedSchema(f"types within types, more than {MAX_DEPTH} deep, are not supported")
        if isinstance(schema, str):
            return self._of_name(schema, above)
        if isinstance(schema, list):
            # The number of the branch is a byte, and no value.
            return max([self.excess(one, (*above, None)) for one in schema], default=1.0) - self._rate
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            name = str(schema["name"])
            self._known[name] = found = self._of_named(kind, schema, (*above, name))
            return found
        if kind in ("array", "map"):
            element = self.excess(schema["items" if kind == "array" else "values"], (*above, None))
            # The key of an entry is a value with at least a byte.
            if element + (0.0 if kind == "array" else 1.0 - self._rate) > 0.0:
                self.fits = False
            return 1.0 - self._rate
        return self.excess(kind, above)

    def _of_named(self, kind: str, schema: Mapping[str, Any], above: tuple[str | None, ...]) -> float:
        if kind == "fixed":
            size = schema["size"]
            if type(size) is not int or size < 0:
                raise UnboundedSchema(f"{schema['name']} has no size")
            return 1.0 - self._rate * size
        if kind == "enum":
            return 1.0 - self._rate
        return 1.0 + sum(self.excess(field["type"], above) for field in schema["fields"])

    def _of_name(self, name: str, above: tuple[str | None, ...]) -> float:
        if name in above:
            raise UnboundedSchema(f"the type {name} holds itself, which is not supported")
        if name in self._known:
            return self._known[name]
        if name in self._named:
            return self.excess(self._named[name], above)
        return 1.0 - self._rate * _LEAST_BYTES.get(name, 1)
