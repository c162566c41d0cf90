"""The contenders of an experiment from settings and names: learners, and un-learned metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kinstream.evaluation.experiment.feeds import Built, Feed, Follows
from kinstream.evaluation.experiment.log_rows import stream_name
from kinstream.evaluation.experiment.plan import SIDE_BY_SIDE, TABLES, Contender, grid
from kinstream.evaluation.experiment.views import several
from kinstream.learners import registry as learners
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import BuilderSettings, LearnerSettings, Settings
from kinstream.streams.spelling import meant

#: The learners that are compared if none is named and the settings have none.
USUAL: Final = ("mixture",)
#: Builder of a learner that is named only by its kind.
BUILDER: Final = "one-pass"
EUCLIDEAN: Final = "euclidean"
#: Un-learned metrics by the mixture's names: scaling of the rows, and arguments of the kind "euclidean".
UNLEARNED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "euclidean": ("none", {}),
    "cosine": ("none", {"scaler": "unit"}),
    "zscore": ("zscore", {}),
    "zscore-cosine": ("zscore", {"scaler": "unit"}),
    "minmax": ("minmax", {}),
}
#: Kinds of learners that scale raw features themselves.
SCALES_ITSELF: Final = frozenset({"mixture"})
#: Scaling of the rows of a learner without a scaler, and of batch learners.
USUAL_SCALING: Final = "zscore"
#: Rows that NCA is fitted to, at most.
BATCH_ROWS: Final = 600
#: Batch learners: kind to name.
BATCH: Final[Mapping[str, str]] = {
    "lda": "LDA (batch)",
    "nca": f"NCA (batch, {BATCH_ROWS} rows at most)",
}


@dataclass(frozen=True)
class ComparisonRequest:
    """The comparison that the user requests.

    Parameters
    ----------
    learners : names of `[learners.NAME]`, or kinds; by default all of the settings, or `USUAL` if they have none.
    grids : values by setting by learner.
    passes : over the rows from which constraints are built; see `feeds.Built`.
    batch : kinds of the batch learners to include, of `BATCH`.
    """

    learners: tuple[str, ...] = ()
    grids: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    passes: int | None = 1
    batch: tuple[str, ...] = ()


def wanted(settings: Settings, asked: ComparisonRequest) -> dict[str, LearnerSettings]:
    """The sections of the learners, by name; a kind is a section with its defaults.

    Raises
    ------
    SettingsError : a name is neither a section nor a kind, or a grid is for a learner that is not compared.
    """
    found = {}
    for name in asked.learners or tuple(settings.learners) or USUAL:
        if name in settings.learners:
            found[name] = settings.learners[name]
        elif name in learners.names():
            found[name] = LearnerSettings.model_validate({"kind": name, "from": [BUILDER]})
        else:
            known = (*settings.learners, *learners.names(), *BATCH)
            raise SettingsError(
                f"there is no learner {name!r}; there are: {', '.join(known)}{meant([name], known)}"
            )
    if strange := sorted(set(asked.grids) - set(found)):
        raise SettingsError(
            f"--grid names {strange[0]}, which is not compared; compared are {', '.join(found)}"
        )
    return found


def of_rows(settings: Settings, asked: ComparisonRequest, *, modalities: int = 1) -> tuple[Contender, ...]:
    """Contenders that learn from labelled rows, each by the builders that it follows.

    Parameters
    ----------
    modalities : of the rows. A learner of one modality sees several side by side.

    Raises
    ------
    SettingsError : a name or a setting is unknown, or a builder makes no constraint that a learner can use.
    """
    sections = wanted(settings, asked)
    feeds: dict[str, Feed] = {}
    found = []
    for name, section in sections.items():
        for builder in section.follows:
            feeds.setdefault(builder, _feed(settings, builder, asked))
            several_feeds = len(section.follows) > 1
            called = f"{name}, {builder}" if several_feeds else name
            made = _contender(called, name, section, feeds[builder], asked, modalities)
            found.append(replace(made, scaling=scaling_of(made)))
    beside = _beside(list(feeds.values()), modalities)
    return (*beside, *found, *_batch(asked, next(iter(feeds.values())), modalities))


def of_log(settings: Settings, asked: ComparisonRequest, *, modalities: int = 1) -> tuple[Contender, ...]:
    """Contenders that learn from constraints that are in a log already, of the builders that each follows.

    Raises
    ------
    SettingsError : a name or a setting is unknown.
    """
    sections = wanted(settings, asked)
    found, names = [], []
    for name, section in sections.items():
        followed = section.follows
        names.append(stream_name(followed))
        made = _contender(name, name, section, Follows(names[-1]), asked, modalities)
        # As in a live system.
        found.append(replace(made, scaling="none"))
    feeds: list[Feed] = [Follows(name) for name in dict.fromkeys(names)]
    return (*_beside(feeds, modalities), *found)


def streams(settings: Settings, asked: ComparisonRequest) -> tuple[tuple[str, ...], ...]:
    """The builders whose constraints are read, as each learner follows them."""
    return tuple(dict.fromkeys(section.follows for section in wanted(settings, asked).values()))


def parse_grids(texts: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Grids as the command line has them, such as "opml.gamma=1e-3,1e-2".

    Raises
    ------
    SettingsError : a text is not LEARNER.SETTING=VALUE,VALUE.

    Examples
    --------
    >>> parse_grids(["opml.gamma=1e-3,1e-2", "opml.scaler=none,unit"])
    {'opml': {'gamma': [0.001, 0.01], 'scaler': ['none', 'unit']}}
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for text in texts:
        place, equals, values = text.partition("=")
        learner, dot, setting = place.partition(".")
        if not (equals and dot and learner and setting and values):
            raise SettingsError(f"--grid {text!r}: write LEARNER.SETTING=VALUE,VALUE")
        found.setdefault(learner, {})[setting] = [_value(value) for value in values.split(",")]
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _feed(settings: Settings, builder: str, asked: ComparisonRequest) -> Feed:
    section = settings.builders.get(builder) or BuilderSettings(kind=builder)
    return Built(section.kind, section.arguments(), passes=asked.passes, called=builder)


def _contender(
    called: str, name: str, section: LearnerSettings, feed: Feed, asked: ComparisonRequest, modalities: int
) -> Contender:
    values = asked.grids.get(name)
    points = ({},) if values is None else grid(values)
    found = Contender(called, section.kind, feed, section.arguments(), points)
    return replace(found, view=SIDE_BY_SIDE) if modalities > 1 and not several(found) else found


def scaling_of(contender: Contender) -> str:
    """The scaling of a learner's rows: none if it scales them itself, else a z-score.

    A learner scales itself if its kind does, or if its settings or its grid name a scaler other than none.
    """
    scalers = {contender.settings.get("scaler"), *(point.get("scaler") for point in contender.grid)}
    own = contender.kind in SCALES_ITSELF or bool(scalers - {None, "none"})
    return "none" if own else USUAL_SCALING


def _beside(feeds: Sequence[Feed], modalities: int) -> list[Contender]:
    """Un-learned metrics on every stream, for their online mistakes; the first stream's have the plain names."""
    return [
        Contender(
            name if at == 0 else f"{name}, {feed.name}",
            EUCLIDEAN,
            feed,
            given,
            unlearned=True,
            view=SIDE_BY_SIDE if modalities > 1 else TABLES,
            scaling=scaling,
        )
        for at, feed in enumerate(feeds)
        for name, (scaling, given) in UNLEARNED.items()
    ]


def _batch(asked: ComparisonRequest, feed: Feed, modalities: int) -> list[Contender]:
    view = SIDE_BY_SIDE if modalities > 1 else TABLES
    return [
        Contender(BATCH[kind], kind, feed, batch=True, view=view, scaling=USUAL_SCALING)
        for kind in asked.batch
    ]
