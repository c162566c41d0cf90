"""The settings of a what-if: one learner's section, taken from elsewhere or changed on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from kinstream.streams.configuration.faults import dotted, faults_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import HELD_OUT, LearnerSettings, Settings
from kinstream.streams.spelling import meant

#: Selects the running generation to compare with; it does not change what the learner does.
_PINNED: Final = "generation"


def what_if_settings(
    settings: Settings,
    learner: str,
    changes: Mapping[str, Any],
    *,
    others: Settings | None = None,
    section: str | None = None,
) -> Settings:
    """The running settings with another section for one learner.

    Parameters
    ----------
    learner : the learner to replay; it may be a new one if `others` or `section` have its settings.
    changes : by name within the section; None leaves a setting out. With another `kind` the rest of the section is
        left out too, except the builders that it follows and the held-out share, since its numbers would have
        another meaning.
    others : settings to read the section from, instead of `settings`.
    section : its name, in place of the learner's.

    Raises
    ------
    SettingsError : no such section, an invalid change, or it follows a builder that does not run here.

    Examples
    --------
    >>> running = Settings(builders={"b": {"kind": "one-pass"}}, learners={"l": {"kind": "opml", "from": ["b"]}})
    >>> what_if_settings(running, "l", {"gamma": 0.5}).learners["l"].arguments()
    {'gamma': 0.5}
    """
    wanted = section or learner
    source = others or settings
    found = source.learners.get(wanted)
    if found is None:
        known = ", ".join(source.learners) or "none"
        raise SettingsError(
            f"no [learners.{wanted}] in the settings; there are: {known}{meant([wanted], source.learners)}"
        )
    content = section_of(found)
    if changes.get("kind", content["kind"]) != content["kind"]:
        content = {name: content[name] for name in ("from", "held_out") if name in content}
    content = {name: value for name, value in {**content, **changes}.items() if value is not None}
    own = settings.learners.get(learner)
    content[_PINNED] = None if own is None else own.generation
    try:
        changed = LearnerSettings(**content)
    except ValidationError as error:
        faults = "; ".join(f"{dotted(path)} {text}" for path, _, text in faults_of(error, LearnerSettings))
        raise SettingsError(f"[learners.{wanted}] as changed: {faults}") from None
    except TypeError as error:
        raise SettingsError(f"[learners.{wanted}] as changed: {error}") from None
    if strangers := [name for name in changed.follows if name not in settings.builders]:
        known = ", ".join(sorted(settings.builders)) or "none"
        raise SettingsError(
            f"[learners.{wanted}] follows {', '.join(map(repr, strangers))}, but there is no such builder here "
            f"(known builders: {known})"
        )
    return settings.model_copy(update={"learners": {**settings.learners, learner: changed}})


def section_of(section: LearnerSettings) -> dict[str, Any]:
    """A section as in the settings file, without the generation that it may pin."""
    own = {} if section.held_out == HELD_OUT else {"held_out": section.held_out}
    return {"kind": section.kind, "from": list(section.follows), **own, **section.arguments()}


def as_toml(learner: str, section: Mapping[str, Any]) -> str:
    """A section as text to paste into the settings file."""
    ordered = {name: section[name] for name in ("kind", "from") if name in section} | dict(section)
    lines = [f"{_toml_key(name)} = {_toml(value)}" for name, value in ordered.items()]
    return "\n".join([f"[learners.{learner}]", *lines])


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(name)} = {_toml(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML's words too
    return json.dumps(value)
