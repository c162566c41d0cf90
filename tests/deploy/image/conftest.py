"""The built image, for the tests of this folder."""

from __future__ import annotations

import os

import pytest

from tests.deploy.image.build import Image, bring, missing


@pytest.fixture(scope="session")
def image() -> Image:
    """The image; where it cannot be built the test fails in CI, and is left out elsewhere."""
    reason = missing()
    if reason is None:
        return bring()
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
