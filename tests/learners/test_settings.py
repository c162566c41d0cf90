"""A learner refuses to follow a builder of which it can use nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import Settings


def settings(builder: dict[str, Any], learner: str = "opml") -> Settings:
    return Settings.model_validate(
        {"builders": {"b": builder}, "learners": {"l": {"kind": learner, "from": ["b"]}}}
    )


@pytest.mark.parametrize(
    "builder",
    [
        {"kind": "one-pass"},
        {"kind": "closure", "emit": "both"},
        {"kind": "clicks", "rules": ["co-click", "click-skip-above"]},
    ],
)
def test_what_emits_triplets_can_be_followed(builder: dict[str, Any]) -> None:
    assert learner_spec(settings(builder), "l").name == "l"


@pytest.mark.parametrize(
    "builder", [{"kind": "closure", "emit": "pairs"}, {"kind": "clicks", "rules": ["co-click"]}]
)
@pytest.mark.parametrize("learner", ["opml", "copml"])
def test_pairs_are_refused_by_a_learner_of_triplets(builder: dict[str, Any], learner: str) -> None:
    with pytest.raises(SettingsError) as caught:
        learner_spec(settings(builder, learner), "l")
    told = str(caught.value)
    assert told.startswith(
        f"[learners.l] ({learner}) learns from triplets, and [builders.b] ({builder['kind']})"
    )
    assert "emits pairs as it is set" in told
    assert "It could follow: clicks, closure, one-pass, random-triplets" in told
