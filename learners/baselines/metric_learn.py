"""metric-learn's LMNN and ITML, imported where they are first needed: an optional package.

metric-learn 0.7.0 hands its input to scikit-learn's checks with an argument that scikit-learn 1.8 has removed. The
classes here skip that check: they get arrays that have been checked.
"""

from __future__ import annotations

from functools import cache
from types import new_class
from typing import Any

from kinstream.streams import extras


def require(who: str) -> None:
    """Check that metric-learn is installed, without importing it.

    Parameters
    ----------
    who : what needs it, for the error.

    Raises
    ------
    SettingsError
        It is not installed; the error shows how to install it.
    """
    extras.require("metric_learn", who=who)


@cache
def lmnn_class() -> type[Any]:
    """metric-learn's LMNN; SettingsError as from `require`."""
    require("LMNN")
    from metric_learn import LMNN

    return _unchecked(LMNN)


@cache
def itml_class() -> type[Any]:
    """metric-learn's ITML from pairs, without the threshold that it would fit too; SettingsError as from `require`."""
    require("ITML")
    from metric_learn.itml import _BaseITML

    return _unchecked(_BaseITML)


def _unchecked(base: type[Any]) -> type[Any]:
    def as_they_are(self: Any, X: Any, y: Any = None, **_: Any) -> Any:
        return X, y

    return new_class(
        base.__name__, (base,), exec_body=lambda names: names.update(_prepare_inputs=as_they_are)
    )
