"""The number of a promoted generation is taken by its birth record, and counts when everything else is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kinstream.streams.agents.generations.birth import (
    Birth,
    Promotion,
    TopicIdentity,
    as_content,
    from_content,
    read_birth,
    write_birth,
)
from kinstream.streams.agents.generations.numbers import make_newest, newest_generation
from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.names import seal
from kinstream.streams.errors import CheckpointError
from kinstream.streams.settings import CheckpointSettings, Settings

PROMOTION = Promotion("digest", {0: 5, 1: 0}, inherited=(1,), taken_over=("b",))


def birth(promotion: Promotion | None = PROMOTION, generation: int = 1) -> Birth:
    return Birth(
        "learner-opml",
        generation,
        "digest",
        {"kind": "opml"},
        {0: 9, 1: 4},
        "cluster",
        "kinstream.constraints",
        "id",
        2,
        {"kinstream.outcomes": TopicIdentity("id", 2)},
        7,
        None,
        promotion,
    )


def settings(root: Path) -> Settings:
    return Settings(checkpoints=CheckpointSettings(url=str(root)))


def test_a_promoted_birth_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    assert write_birth(str(tmp_path), birth())
    assert read_birth(str(tmp_path), "learner-opml", 1) == birth()
    assert not write_birth(str(tmp_path), birth(None))


def test_only_promoted_births_have_the_newer_format(tmp_path: Path) -> None:
    assert as_content(birth())["format"] == 2
    plain = as_content(birth(None))
    assert plain["format"] == 1
    assert "promotion" not in plain  # a version that knows no promotions reads it
    assert from_content(plain, "here") == birth(None)


def test_a_later_format_and_a_broken_promotion_are_told_apart() -> None:
    with pytest.raises(CheckpointError, match="here: format 4 is newer than 3"):
        from_content({**as_content(birth()), "format": 4}, "here")
    content = as_content(birth())
    del content["promotion"]["learned_from"]
    with pytest.raises(Damaged, match="here: not a birth record"):
        from_content(content, "here")


def test_a_first_generation_that_is_promoted_counts_from_its_number_on(tmp_path: Path) -> None:
    write_birth(str(tmp_path), birth())
    assert newest_generation(settings(tmp_path), "learner-opml") is None
    make_newest(settings(tmp_path), "learner-opml", 1)
    assert newest_generation(settings(tmp_path), "learner-opml") == 1
    write_birth(str(tmp_path), replace(birth(None), application="learner-copml"))
    assert newest_generation(settings(tmp_path), "learner-copml") == 1


def test_a_changed_promotion_is_damage(tmp_path: Path) -> None:
    write_birth(str(tmp_path), birth())
    path = tmp_path / "learner-opml" / "1" / "birth.json"
    content = json.loads(path.read_bytes())
    content["content"]["promotion"]["learned_from"]["0"] = 6
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="digest does not match"):
        read_birth(str(tmp_path), "learner-opml", 1)
    path.write_bytes(seal(content["content"]))
    found = read_birth(str(tmp_path), "learner-opml", 1)
    assert found is not None and found.promotion is not None
    assert found.promotion.learned_from == {0: 6, 1: 0}
