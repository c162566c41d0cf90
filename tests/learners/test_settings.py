"""A learner refuses to follow a builder of which it can use nothing, or that takes the order of lists for wishes."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from kinstream.cli.system.first_settings import DATA, first_settings
from kinstream.learners import registry
from kinstream.learners.agent import learner_spec
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import LIST_RULE, PREFERENCE_RULES
from kinstream.streams.settings import Settings


def settings(builder: dict[str, Any], learner: str = "opml", **more: Any) -> Settings:
    return Settings.model_validate(
        {
            "builders": {"b": builder, "labels": {"kind": "one-pass"}},
            "learners": {"l": {"kind": learner, "from": ["b"], **more}},
        }
    )


@pytest.mark.parametrize(
    "builder",
    [
        {"kind": "one-pass"},
        {"kind": "closure", "emit": "both"},
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
    assert "It could follow: closure, one-pass, random-triplets" in told


#: What a builder of clicks makes of ranked lists, with nothing that takes their order out.
RANKED: list[dict[str, Any]] = [
    *({"rules": [rule]} for rule in PREFERENCE_RULES),
    {"rules": ["click-skip-above", "co-click"]},
    *(
        {"rules": ["click-skip-previous"], "bias": bias}
        for bias in ("weights", "thinning", "fair-pairs", "randomised")
    ),
]
#: Learners of whole lists.
WHOLE = ("adapter", "ranking")
#: Learners of triplets, of pairs, of lists, of several modalities and of others; all but the one that learns nothing.
LEARNING = sorted(set(registry.own_names()) - {"euclidean"})


@pytest.mark.parametrize("rules", RANKED, ids=str)
@pytest.mark.parametrize("kind", LEARNING)
def test_no_learner_takes_the_order_of_ranked_lists_for_what_users_want(
    kind: str, rules: dict[str, Any]
) -> None:
    builder = {"kind": "clicks", **rules}
    for follows in (["b"], ["labels", "b"]):
        with pytest.raises(SettingsError) as caught:
            learner_spec(settings(builder, kind, **{"from": follows}), "l")
        told = str(caught.value)
        assert told.startswith(
            f"[learners.l] ({kind}) follows [builders.b], whose rules ({rules['rules'][0]}"
        )
        assert 'Set rules = ["click-list"] in [builders.b]' in told
        assert ('kind = "ranking" in [learners.l]' in told) == (kind not in WHOLE)
        assert "unranked_lists = true in [learners.l]" in told


@pytest.mark.parametrize("kind", LEARNING)
def test_whole_lists_are_for_learners_of_lists(kind: str) -> None:
    # The rule where none is set, too.
    for builder in ({"kind": "clicks"}, {"kind": "clicks", "rules": [LIST_RULE, "co-click"]}):
        if kind in WHOLE:
            assert learner_spec(settings(builder, kind), "l").name == "l"
            continue
        with pytest.raises(SettingsError, match=r'\(click-list.* Set kind = "ranking" in \[learners.l\]'):
            learner_spec(settings(builder, kind), "l")


def test_a_learner_of_several_modalities_is_what_it_is_made_of() -> None:
    for base, taken in (("adapter", True), ("euclidean", True), ("itml-online", False)):
        one = settings({"kind": "clicks"}, "fusion", base=base)
        if taken:
            assert learner_spec(one, "l").name == "l"
        else:
            with pytest.raises(SettingsError, match='kind = "ranking"'):
                learner_spec(one, "l")


@pytest.mark.parametrize("rules", RANKED, ids=str)
def test_what_learns_nothing_follows_any_lists(rules: dict[str, Any]) -> None:
    assert learner_spec(settings({"kind": "clicks", **rules}, "euclidean"), "l").name == "l"


def test_who_says_that_lists_were_in_no_order_may_learn_from_them_and_keeps_the_generation() -> None:
    builder = {"kind": "clicks", "rules": ["click-skip-above"]}
    for kind in ("adapter", "opml", "euclidean"):
        allowed = learner_spec(settings(builder, kind, unranked_lists=True), "l")
        assert "unranked_lists" not in str(allowed.shaping)


def test_the_settings_to_begin_with_of_clicks_are_whole_lists_and_a_learner_of_them() -> None:
    for data in DATA:
        made = Settings.model_validate(tomllib.loads(first_settings(data, "b:1", "c")))
        (name,) = made.learners
        learner_spec(made, name)
        clicked = [builder for builder in made.builders.values() if builder.kind == "clicks"]
        assert bool(clicked) == (data in ("clicks", "embeddings"))
        for builder in clicked:
            assert builder.arguments()["rules"] == [LIST_RULE] and made.learners[name].kind == "ranking"
