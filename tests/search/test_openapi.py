"""A fuzzer drives a space with our own index by its own schema: every answer is one that the schema announces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.search.index_service import Agent, items, linear, running, served

#: All that fit here; whether data that fits the schema is taken depends, besides, on the catalogue's dimension.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    # One space of one dimension, so that many of the generated requests are answered.
    with running(spaces={"shop": {"learner": "opml"}}) as found:
        X = np.random.default_rng(2).normal(size=(20, 1))
        found.events.append(items("shop", [str(n) for n in range(20)], X))
        found.announced.announce("shop", linear(1, 1), 3)
        found.settle()
        yield found


@pytest.fixture(scope="module")
def api(agent: Agent) -> Iterator[Any]:
    with served(agent) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


OPERATIONS = (
    ("/search", "POST"),
    ("/similar", "POST"),
    ("/similar/{item}", "GET"),
    ("/similar/{item}", "POST"),
    ("/map", "POST"),
    ("/spaces", "GET"),
)


@pytest.mark.long
def test_every_operation_is_driven(api: Any) -> None:
    found = {(one.ok().path, one.ok().method.upper()) for one in api.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.long
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_in_the_schema(api: Any, path: str, method: str, mode: GenerationMode) -> None:
    if path == "/spaces" and not mode.is_positive:
        mode = GenerationMode.POSITIVE  # it takes nothing that could be wrong
    operation = api[path][method]
    seen = []

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=30,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def drive(case: Any) -> None:
        seen.append(case.call_and_validate(checks=CHECKS).status_code)

    drive()
    assert seen
    if mode.is_positive and path in ("/search", "/map", "/spaces"):
        assert 200 in seen
    if not mode.is_positive:
        assert any(status >= 400 for status in seen)
