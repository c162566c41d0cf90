"""Announcements of models, so that services load them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kinstream.learners.registry import is_baseline
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.space_facts import SpaceFacts, model_version
from kinstream.streams.checkpoints.store import CheckpointStore, Manifest
from kinstream.streams.records.codec.every_kind import encode
from kinstream.streams.records.message import Output
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.models")


def withholds(settings: Settings, learner: str) -> bool:
    """Whether a learner's model is withheld while it is worse than the best un-learned metric.

    A baseline is always announced, and so is a learner that the settings do not name.
    """
    section = settings.learners.get(learner)
    if section is None or section.publish == "always" or not section.held_out:
        return False
    return not is_baseline(str(section.arguments().get("base", section.kind)))


class ModelAnnouncer:
    """Publishes the location of the newest model of each space, after the manifest that names it.

    Parameters
    ----------
    withholds : whether to withhold a model that is worse than the best un-learned metric; the model announced before it
        stays. A deletion is always announced.
    """

    def __init__(
        self, store: CheckpointStore, learner: str, algorithm: str, topic: str, *, withholds: bool = False
    ) -> None:
        self._store = store
        self._learner = learner
        self._algorithm = algorithm
        self._topic = topic
        self._withholds = withholds
        self._withheld: set[str] = set()

    def __call__(self, manifest: Manifest, spaces: Iterable[str], machine: Machine) -> list[Output]:
        outputs = []
        for name in sorted(spaces):
            file = manifest.spaces[name]
            facts = SpaceFacts.parse(file.label)
            if facts.epoch < 0:
                continue  # only a refused record has named that space
            if self._holds_back(name, facts):
                continue
            version = model_version(
                manifest,
                name,
                facts,
                learner=self._learner,
                algorithm=self._algorithm,
                location=self._store.location(file),
            )
            key = f"{name}/{self._learner}/{manifest.generation}".encode()
            outputs.append(Output(self._topic, key, encode(version), ()))
        return outputs

    def _holds_back(self, space: str, facts: SpaceFacts) -> bool:
        worse = self._withholds and facts.worse and not facts.deleted
        if worse and space not in self._withheld:
            self._withheld.add(space)
            log.warning(
                "space %s: the model of learner %s is withheld at step %d: on held-out events it is worse than the "
                "best un-learned metric. It learns on, and is announced again once it is not",
                space,
                self._learner,
                facts.step,
            )
        elif not worse and space in self._withheld:
            self._withheld.remove(space)
            log.info(
                "space %s: the model of learner %s is announced again at step %d",
                space,
                self._learner,
                facts.step,
            )
        return worse
