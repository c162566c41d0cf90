"""Contenders from settings and names."""

from __future__ import annotations

from typing import Any

import pytest

from kinstream.evaluation.experiment.contenders import (
    UNLEARNED,
    USUAL,
    ComparisonRequest,
    of_log,
    of_rows,
    parse_grids,
    streams,
)
from kinstream.evaluation.experiment.plan import Plan
from kinstream.learners import registry
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import Settings

CONFIG: dict[str, Any] = {
    "builders": {
        "one-pass": {"kind": "one-pass", "negatives": "official"},
        "pairs": {"kind": "random-pairs"},
    },
    "learners": {
        "careful": {"kind": "opml", "from": ["one-pass"], "gamma": 1e-4, "scaler": "zscore"},
        "both": {"kind": "lego", "from": ["one-pass", "pairs"]},
    },
}
SETTINGS = Settings(**CONFIG)


def names(found: Any) -> list[str]:
    return [contender.name for contender in found]


def test_all_learners_of_the_settings_are_compared_with_what_learns_nothing() -> None:
    found = of_rows(SETTINGS, ComparisonRequest())
    assert names(found) == [
        *UNLEARNED,
        *(f"{name}, pairs" for name in UNLEARNED),
        *("careful", "both, one-pass", "both, pairs"),
    ]
    careful = found[10]
    assert careful.kind == "opml" and careful.settings == {"gamma": 1e-4, "scaler": "zscore"}
    assert careful.feed.describe()["settings"] == {"negatives": "official"}
    assert [c.unlearned for c in found] == [True] * 10 + [False] * 3
    # Only the learner without a scaler gets a z-score.
    assert [c.scaling for c in found[10:]] == ["none", "zscore", "zscore"]


def test_un_learned_metrics_have_their_own_scaling_whatever_learners_get() -> None:
    asked = ComparisonRequest(("mixture", "opml", "careful"))
    found = {c.name: (c.scaling, dict(c.settings)) for c in of_rows(SETTINGS, asked)}
    assert found == {
        "euclidean": ("none", {}),
        "cosine": ("none", {"scaler": "unit"}),
        "zscore": ("zscore", {}),
        "zscore-cosine": ("zscore", {"scaler": "unit"}),
        "minmax": ("minmax", {}),
        # The mixture brings its scales, `careful` its scaler.
        "mixture": ("none", {}),
        "opml": ("zscore", {}),
        "careful": ("none", {"gamma": 1e-4, "scaler": "zscore"}),
    }


def test_a_grid_over_scalers_gets_features_as_they_are() -> None:
    found = of_rows(Settings(), ComparisonRequest(("opml",), grids={"opml": {"scaler": ["none", "unit"]}}))
    assert found[-1].scaling == "none"


def test_batch_learners_follow_the_others() -> None:
    found = of_rows(Settings(), ComparisonRequest(batch=("lda", "nca")))
    assert [(c.name, c.kind, c.scaling, c.family) for c in found[-3:]] == [
        ("mixture", "mixture", "none", "ensemble"),
        ("LDA (batch)", "lda", "zscore", "batch"),
        ("NCA (batch, 600 rows at most)", "nca", "zscore", "batch"),
    ]
    Plan("test", found)


def test_without_settings_the_default_learner_is_compared() -> None:
    found = of_rows(Settings(), ComparisonRequest())
    assert names(found) == [*UNLEARNED, "mixture"]
    assert {c.feed.name for c in found} == {"one-pass"}


def test_kinds_and_builders_are_taken_by_name() -> None:
    wrong: dict[str, Any] = {
        "builders": {"pairs": {"kind": "adjacent-pairs"}},
        "learners": {"careful": {"kind": "opml", "from": ["pairs"]}},
    }
    with pytest.raises(SettingsError, match=r"careful .*learns from triplets, and pairs makes pairs"):
        Plan("test", of_rows(Settings(**wrong), ComparisonRequest()))
    found = of_rows(SETTINGS, ComparisonRequest(("both", "rdml"), passes=2))
    assert names(found)[-3:] == ["both, one-pass", "both, pairs", "rdml"]
    assert found[-2].feed.describe() == {
        **{"name": "pairs", "kind": "random-pairs", "settings": {}, "limit": None, "passes": 2},
        "block_rows": 256,
    }


def test_several_modalities_are_seen_side_by_side_or_as_tables() -> None:
    found = of_rows(Settings(), ComparisonRequest(("opml", "lomdml")), modalities=3)
    assert {c.name: c.view for c in found} == {
        **dict.fromkeys([*UNLEARNED, "opml"], "side-by-side"),
        "lomdml": "tables",
    }


def test_a_log_has_one_stream_for_all_builders_that_a_learner_follows() -> None:
    assert streams(SETTINGS, ComparisonRequest()) == (("one-pass",), ("one-pass", "pairs"))
    found = of_log(SETTINGS, ComparisonRequest(("both",)))
    assert names(found) == [*UNLEARNED, "both"]
    # As it would learn live.
    assert found[-1].scaling == "none"
    assert {c.feed.name for c in found} == {"one-pass + pairs"}


def test_grids_belong_to_learners_that_are_compared() -> None:
    found = of_rows(
        SETTINGS, ComparisonRequest(("careful",), grids={"careful": {"gamma": [1e-3, 1e-2], "warm_up": [9]}})
    )
    assert found[-1].grid == ({"gamma": 1e-3, "warm_up": 9}, {"gamma": 1e-2, "warm_up": 9})
    with pytest.raises(SettingsError, match="--grid names both, which is not compared"):
        of_rows(SETTINGS, ComparisonRequest(("careful",), grids={"both": {"eta": [1]}}))


@pytest.mark.parametrize("text", ["opml", "opml.gamma", "opml=1", "opml.gamma=", ".gamma=1"])
def test_a_grid_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"write LEARNER\.SETTING=VALUE,VALUE"):
        parse_grids([text])


def test_values_are_read_as_json_or_as_words() -> None:
    found = parse_grids(["a.x=1,2.5,true,null,word", "a.y=3", "b.x=4"])
    assert found == {"a": {"x": [1, 2.5, True, None, "word"], "y": [3]}, "b": {"x": [4]}}


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(SettingsError, match=r"no learner 'opl'; there are: careful, both, .*opml"):
        of_rows(SETTINGS, ComparisonRequest(("opl",)))
    assert set(USUAL) <= set(registry.names())
