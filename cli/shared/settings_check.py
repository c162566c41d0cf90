"""The checks of settings that need the algorithms: every builder, learner and index is constructed from its section.

A package missing on this machine is not a fault of the settings: the agent that needs it refuses to start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kinstream.streams.configuration.faults import Fault, names
from kinstream.streams.configuration.service import INDEX
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import PackageMissing, SettingsError
from kinstream.streams.extras import installed
from kinstream.streams.settings import BuilderSettings, KafkaSettings, LearnerSettings, ReadSettings, Settings
from kinstream.streams.spelling import meant

#: An error of a constructor begins with the name of its setting.
_ABOUT: Final = re.compile(r"(\w+) (must .*|was removed: .*)", re.DOTALL)


def algorithm_faults(found: ReadSettings) -> list[Fault]:
    """The faults in [builders.*], [learners.*], [serve.spaces.*] and [sources.*] beyond their form."""
    from kinstream.learners import registry as learners
    from kinstream.processors import registry as builders

    faults: list[Fault] = []
    sound: dict[str, dict[str, Any]] = {"builders": {}, "learners": {}}
    for role, model, registry in (
        ("builders", BuilderSettings, builders),
        ("learners", LearnerSettings, learners),
    ):
        for name, section in _tables(found.data.get(role)):
            own = list(_section_faults(found, (role, name), section, model, registry))
            faults += own
            if not own:
                sound[role][name] = section
    faults += _agent_faults(found, sound)
    faults += _serve_faults(found)
    faults += _source_faults(found)
    return faults


def _tables(sections: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(sections, dict):
        return []
    return [(name, section) for name, section in sections.items() if isinstance(section, dict)]


def _section_faults(
    found: ReadSettings, path: tuple[str, str], section: Mapping[str, Any], model: Any, registry: Any
) -> Iterator[Fault]:
    kind = section.get("kind")
    if kind is None or not isinstance(kind, str):
        if kind is None:
            yield found.fault((*path, "kind"), f"is missing{_others(found, path, registry.names())}")
        return
    own = set(names(model))
    arguments = {key: value for key, value in section.items() if key not in own}
    try:
        known, removed = registry.settings_of(kind), registry.removed_of(kind)
    except SettingsError as error:
        # It is unknown or was removed, or is of another distribution and cannot be imported.
        yield found.fault((*path, "kind"), str(error))
        return
    for key in [key for key in arguments if key not in (*known, *removed)]:
        del arguments[key]
        hint = meant([key], [*known, *own]) or f"; there are {', '.join(known) or 'none'}"
        yield found.fault((*path, key), f"{kind} has no such setting{hint}")
    for where, text in _refusals(lambda given: registry.create(kind, **given), arguments):
        yield found.fault((*path, *where), text)


def _others(found: ReadSettings, path: tuple[str, str], kinds: Iterable[str]) -> str:
    """A hint for a section without a kind: a similar section name, or the kinds."""
    written = found.layers.in_file.get(path[0])
    if isinstance(written, dict) and path[1] not in written and (hint := meant([path[1]], written)):
        return f", because there is no such section{hint}"
    return f"; it is one of {', '.join(kinds)}"


def _refusals(make: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """The settings that a constructor refuses, one after the other: each is left out once it is reported."""
    left = dict(arguments)
    while True:
        try:
            make(left)
        except PackageMissing:
            return
        except SettingsError as error:
            text = str(error)
        except Exception as error:
            # A value that the constructor does not check for; it would end the stream too.
            text = f"cannot be used as it is set: {error}"
        else:
            return
        if (about := _ABOUT.match(text)) and about[1] in left:
            del left[about[1]]
            yield (about[1],), about[2]
        else:
            yield (), text
            return


def _agent_faults(found: ReadSettings, sound: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """Learners that cannot use any of their builders' constraints, or cannot publish updates as set."""
    from kinstream.learners.agent import learner_spec

    builders = _validated(sound["builders"], BuilderSettings)
    for name, section in _validated(sound["learners"], LearnerSettings).items():
        if not set(section.follows) <= set(builders):
            continue
        alone = Settings.model_construct(
            kafka=KafkaSettings.model_construct(), builders=builders, learners={name: section}
        )
        try:
            learner_spec(alone, name)
        except PackageMissing:
            continue
        except SettingsError as error:
            text = str(error).removeprefix(f"[learners.{name}] ")
            yield found.fault(("learners", name), text, section=True)


def _validated(sections: dict[str, Any], model: Any) -> dict[str, Any]:
    made = {}
    for name, section in sections.items():
        try:
            made[name] = model(**section)
        except (ValueError, TypeError):
            continue  # its form is wrong, which is already reported
    return made


def _source_faults(found: ReadSettings) -> Iterator[Fault]:
    tables = _tables(found.data.get("sources"))
    if not tables or not installed("orjson"):
        return
    from kinstream.producers.sources.mapping import mapper

    for name, section in _validated(dict(tables), SourceSettings).items():
        try:
            mapper(section)
        except SettingsError as error:
            yield found.fault(("sources", name), str(error), section=True)


def _learner_faults(found: ReadSettings, tables: list[tuple[str, dict[str, Any]]]) -> Iterator[Fault]:
    """Spaces of the service that name a learner which is similar to one of the settings."""
    learners = found.data.get("learners")
    known = list(learners) if isinstance(learners, dict) else []
    for name, table in tables:
        learner = table.get("learner")
        if isinstance(learner, str) and learner not in known and (hint := meant([learner], known)):
            # Without a similar name, it may be a learner of other settings.
            path = ("serve", "spaces", name, "learner")
            yield found.fault(path, f"the settings have no [learners.{learner}]{hint}")


def _serve_faults(found: ReadSettings) -> Iterator[Fault]:
    serve = found.data.get("serve")
    tables = _tables(serve.get("spaces") if isinstance(serve, dict) else None)
    yield from _learner_faults(found, tables)
    tables = [(name, table) for name, table in tables if table.get("backend", INDEX) == INDEX]
    if not tables:
        return
    from kinstream.search.index.engines import IndexPlan, check
    from kinstream.streams.settings import ServeSpaceSettings

    for name, table in tables:
        path = ("serve", "spaces", name)
        try:
            section = ServeSpaceSettings(**table)
        except (ValueError, TypeError):
            continue
        try:
            settings = found.settings or Settings.model_construct(kafka=KafkaSettings.model_construct())
            check(IndexPlan(section.index, section.options), settings, section.learner or "", "")
        except PackageMissing:
            continue
        except SettingsError as error:
            yield found.fault(path, str(error).removeprefix(": "), section=True)
