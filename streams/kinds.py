"""Kinds of learners, builders and stores by name, each imported on first use: Kinstream's own, and those of others.

Another distribution adds a kind by an entry point: its name is the kind, its value "package.module:Class".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, Final

from kinstream.streams.errors import SettingsError
from kinstream.streams.spelling import meant

_LOG: Final = logging.getLogger(__name__)


class Kinds:
    """One table of kinds.

    Parameters
    ----------
    what : what they are, such as "learner".
    group : entry points of this group are kinds of other distributions.
    own : kind -> "module:class".
    gone : kinds of earlier versions, and what to use instead.
    """

    def __init__(
        self, what: str, group: str, own: Mapping[str, str], gone: Mapping[str, str] | None = None
    ) -> None:
        self.what, self.group, self.own, self.gone = what, group, own, gone or {}

    def names(self) -> tuple[str, ...]:
        """All kinds, in alphabetical order."""
        return tuple(sorted({*self.own, *self._offered}))

    def distribution_of(self, kind: str) -> str | None:
        """The distribution of a kind, "name version"; None for a kind of Kinstream or an unknown one."""
        offers = self._offered.get(kind)
        return ", ".join(_name_of(offer) for offer in offers) if offers else None

    def class_of(self, kind: str) -> type:
        """The class of a kind.

        Raises
        ------
        SettingsError : it is unknown or was removed; or it is of another distribution, and cannot be imported.
        """
        if kind in self.own:
            module, name = self.own[kind].split(":")
            found: type = getattr(import_module(module), name)
            return found
        if kind in self._offered:
            return self._loaded(kind)
        if kind in self.gone:
            raise SettingsError(
                f"the {self.what} {kind!r} was removed: use {self.gone[kind]!r} in a new generation"
            )
        known = self.names()
        raise SettingsError(
            f"no {self.what} is called {kind!r}; known are {', '.join(known)}{meant([kind], known)}"
        )

    def settings_of(self, kind: str) -> tuple[str, ...]:
        """Names of the constructor arguments of a kind."""
        return tuple(signature(self.class_of(kind)).parameters)

    def removed_of(self, kind: str) -> tuple[str, ...]:
        """Names of the arguments that it had in earlier versions; see `create`."""
        return tuple(getattr(self.class_of(kind), "removed", ()))

    def create(self, kind: str, settings: Mapping[str, Any], contract: Any, members: tuple[str, ...]) -> Any:
        """A new object of a kind.

        Parameters
        ----------
        settings : arguments of its constructor.
        contract, members : what an object of another distribution has to be an instance of, and to have for it.

        Raises
        ------
        SettingsError
            Unknown kind, unknown setting, or a value out of range. The class of another distribution cannot be imported
            or created, or does not keep the contract; the error names the distribution.

        Notes
        -----
        A class may have `removed`, a table of settings of earlier versions by name: a value with which `same(value,
        settings)` is true is left out, and others are refused with the text `instead`.
        """
        made = self.class_of(kind)
        known = self.settings_of(kind)
        for name, removed in getattr(made, "removed", {}).items():
            if name in settings and name not in known:
                if not removed.same(settings[name], settings):
                    raise SettingsError(f"{name} was removed: {removed.instead}")
                settings = {key: value for key, value in settings.items() if key != name}
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise SettingsError(
                f"{kind} has no setting {', '.join(unknown)}; it has {', '.join(known)}{meant(unknown, known)}"
            )
        if kind in self.own:
            return made(**settings)
        whose = f"the {self.what} {kind!r} of {self.distribution_of(kind)}"
        try:
            created = made(**settings)
        except SettingsError:
            raise
        except Exception as error:
            raise SettingsError(f"{whose} cannot be made: {type(error).__name__}: {error}") from error
        if not isinstance(created, contract):
            missing = [name for name in members if not hasattr(created, name)]
            raise SettingsError(f"{whose} is not a {self.what}: it has no {', '.join(missing)}")
        return created

    @cached_property
    def _offered(self) -> dict[str, tuple[EntryPoint, ...]]:
        """The entry points of other distributions by kind."""
        # One distribution may be found twice, such as an editable installation that is on the path as well.
        found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
        for offer in entry_points(group=self.group):
            found.setdefault(offer.name, {})[_name_of(offer), offer.value] = offer
        for kind in sorted(found.keys() & self.own.keys()):
            for offer in found.pop(kind).values():
                _LOG.warning(
                    "%s offers a %s %r (%s): ignored, because Kinstream has a %s of that name",
                    _name_of(offer),
                    self.what,
                    kind,
                    offer.value,
                    self.what,
                )
        return {kind: tuple(sorted(offers.values(), key=_name_of)) for kind, offers in found.items()}

    def _loaded(self, kind: str) -> type:
        """The class of another distribution's entry point."""
        offer, *others = self._offered[kind]
        if others:
            raise SettingsError(
                f"several distributions offer a {self.what} {kind!r}: {self.distribution_of(kind)}; uninstall all but "
                "one"
            )
        whose = f"the {self.what} {kind!r} of {_name_of(offer)}"
        try:
            found = offer.load()
        except Exception as error:
            raise SettingsError(
                f"{whose} cannot be imported from {offer.value}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, type):
            raise SettingsError(f"{whose} is not a class: {offer.value}")
        return found


def _name_of(offer: EntryPoint) -> str:
    return "an unknown distribution" if offer.dist is None else f"{offer.dist.name} {offer.dist.version}"
