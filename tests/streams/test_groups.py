"""Deployments whose topics have different names have different consumer groups, and rights on their own alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.cli.shared.agents import agent_spec
from kinstream.streams.groups import Group, name_of, read, start_of
from kinstream.streams.kafka.rights.acls import ROLES
from kinstream.streams.settings import Settings

PREFIXES = st.one_of(st.just("kinstream"), st.from_regex(r"[a-z0-9][a-z0-9-]{0,12}", fullmatch=True))
APPLICATIONS = st.from_regex(r"metrics|(builder|learner)-[a-z0-9][a-z0-9-]{0,12}", fullmatch=True)


@given(PREFIXES, PREFIXES, APPLICATIONS, APPLICATIONS, st.integers(1, 99), st.integers(1, 99))
def test_no_two_deployments_share_a_group(
    prefix: str, other: str, mine: str, theirs: str, first: int, second: int
) -> None:
    name = name_of(prefix, mine, first)
    assert read(prefix, name) == Group(mine, first)
    if prefix != other:
        assert name != name_of(other, theirs, second)
        assert not name.startswith(start_of(other)) and read(other, name) is None


@pytest.mark.parametrize(
    ("prefix", "group"),
    [("kinstream", "kinstream-learner-opml-v3"), ("staging", "staging.learner-opml-v3")],
)
def test_the_usual_names_stay_as_they_are(prefix: str, group: str) -> None:
    config = Settings.model_validate(
        {
            "topics": {"prefix": prefix},
            "builders": {"one-pass": {"kind": "one-pass"}},
            "learners": {"opml": {"kind": "opml", "from": ["one-pass"]}},
        }
    )
    assert agent_spec(config, "learner", "opml").group(3) == group
    for role, agent, application in (
        ("builder", "one-pass", "builder-one-pass"),
        ("metrics", None, "metrics"),
    ):
        assert agent_spec(config, role, agent).group(1) == name_of(prefix, application, 1)


def test_no_role_of_one_deployment_has_a_right_on_groups_of_another() -> None:
    for role in ROLES.values():
        for grant in (one for one in role.grants("staging") if one.resource == "group"):
            assert grant.name.startswith("staging.")
            assert not name_of("staging-2", "learner-opml", 1).startswith(grant.name)
            assert not name_of("kinstream", "learner-opml", 1).startswith(grant.name)


@pytest.mark.parametrize("name", ["kinstream-reader", "kinstream-learner-opml", "staging.metrics-v1", ""])
def test_other_groups_are_nobodys(name: str) -> None:
    assert read("kinstream", name) is None
