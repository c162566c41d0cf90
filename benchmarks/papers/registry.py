"""The experiments by name, each imported only on use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from kinstream.streams.errors import SettingsError

if TYPE_CHECKING:
    from benchmarks.papers.shared.protocol import Protocol

#: Name -> module.
_MODULES: Final = {
    "opml-table-2": "opml_table_2",
    "opml-table-4": "opml_table_4",
    "oahu-table-3": "oahu_table_3",
    "lego-uci": "lego_uci",
    "lego-mnist-pairs": "lego_mnist_pairs",
    "omdml-small": "omdml_small",
}


def names() -> tuple[str, ...]:
    """The names of all experiments."""
    return tuple(_MODULES)


def protocol(name: str) -> Protocol:
    """An experiment.

    Raises
    ------
    SettingsError : there is none of that name.
    """
    if name not in _MODULES:
        raise SettingsError(f"no experiment has the name {name!r}; there are {', '.join(names())}")
    found: Protocol = import_module(f"benchmarks.papers.{_MODULES[name]}").PROTOCOL
    return found
