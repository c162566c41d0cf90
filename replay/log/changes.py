"""The settings of a replay that tries other ones for a learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kinstream.streams.configuration.faults import dotted, faults_of
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import LearnerSettings, Settings
from kinstream.streams.spelling import meant


def with_changes(settings: Settings, learner: str, changes: Mapping[str, Any]) -> Settings:
    """The settings with another section for one learner.

    Parameters
    ----------
    changes : by name within the section; None leaves a setting out. With another `kind` the rest of the section is left
        out too, except the builders that it follows and the held-out share, since its numbers would have another
        meaning.

    Raises
    ------
    SettingsError : no such section, an invalid change, or it follows a builder that does not exist.

    Examples
    --------
    >>> running = Settings(builders={"b": {"kind": "one-pass"}}, learners={"l": {"kind": "opml", "from": ["b"]}})
    >>> with_changes(running, "l", {"gamma": 0.5}).learners["l"].arguments()
    {'gamma': 0.5}
    """
    found = settings.learners.get(learner)
    if found is None:
        known = ", ".join(settings.learners) or "none"
        raise SettingsError(
            f"no [learners.{learner}] in the settings; there are: {known}{meant([learner], settings.learners)}"
        )
    content = found.model_dump(by_alias=True)
    if changes.get("kind", found.kind) != found.kind:
        content = {name: content[name] for name in ("from", "held_out", "generation")}
    content = {name: value for name, value in {**content, **changes}.items() if value is not None}
    try:
        changed = LearnerSettings(**content)
    except ValidationError as error:
        faults = "; ".join(f"{dotted(path)} {text}" for path, _, text in faults_of(error, LearnerSettings))
        raise SettingsError(f"[learners.{learner}] as changed: {faults}") from None
    except TypeError as error:
        raise SettingsError(f"[learners.{learner}] as changed: {error}") from None
    if strangers := [name for name in changed.follows if name not in settings.builders]:
        known = ", ".join(sorted(settings.builders)) or "none"
        raise SettingsError(
            f"[learners.{learner}] follows {', '.join(map(repr, strangers))}, but there is no such builder here "
            f"(known builders: {known})"
        )
    return settings.model_copy(update={"learners": {**settings.learners, learner: changed}})
