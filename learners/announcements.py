"""Announcements of models, so that services load them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kinstream.learners.registry import is_baseline
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.space_facts import SpaceFacts, announced_version
from kinstream.streams.checkpoints.store import CheckpointStore, Manifest
from kinstream.streams.records.codec.codec import encode
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
    withholds : whether to withhold a model that is worse than the best un-learned metric. The model announced before it
        is announced again, with a note of the one that is withheld; its file stays. A deletion is always announced.
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
            label = manifest.spaces[name].label
            facts = SpaceFacts.parse(label)
            if facts.epoch < 0:
                continue  # only a refused record has named that space
            withheld = self.withholds(label)
            self._log(name, facts, withheld)
            if withheld and name not in manifest.announced:
                continue  # by a checkpoint of an earlier version
            version = announced_version(
                manifest, name, learner=self._learner, algorithm=self._algorithm, url=self._store.url
            )
            if version is None:
                continue
            key = f"{name}/{self._learner}/{manifest.generation}".encode()
            note = (facts.withheld(manifest.generation).header(),) if withheld else ()
            outputs.append(Output(self._topic, key, encode(version), note))
        return outputs

    def withholds(self, label: str) -> bool:
        """Whether the newest model of a space with that label is not announced."""
        if not self._withholds:
            return False
        facts = SpaceFacts.parse(label)
        return facts.worse and not facts.deleted

    def _log(self, space: str, facts: SpaceFacts, worse: bool) -> None:
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
