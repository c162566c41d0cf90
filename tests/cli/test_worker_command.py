"""`kinstream worker ROLE [NAME]`: which roles have a name."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kinstream.cli.commands.worker import ROLES
from kinstream.cli.main import cli


@pytest.mark.parametrize("role", ROLES)
def test_a_name_is_asked_for_or_refused_before_anything_is_opened(role: str) -> None:
    what, named = ROLES[role]
    words = [role] if named else [role, "somebody"]
    result = CliRunner().invoke(cli, ["worker", *words])
    assert result.exit_code == 2
    wanted = "needs a NAME" if named else "takes no name"
    assert f"kinstream worker {role} {wanted}: it runs {what}" in " ".join(result.output.split())


def test_an_unknown_role_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(cli, ["worker", "bulder", "x"])
    assert result.exit_code == 2 and "'source', 'builder', 'learner'" in result.output
