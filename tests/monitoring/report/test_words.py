"""Numbers and names as people read them."""

from __future__ import annotations

import pytest

from kinstream.evaluation.report.words import (
    capital,
    chance,
    listed,
    number,
    several,
    shortened,
    spread,
)


def test_numbers() -> None:
    assert (number(0.12345), number(None), number(2.25, 1)) == ("0.123", "\N{EN DASH}", "2.2")
    assert (spread(0.1, 0.0123), spread(0.1, None)) == ("0.100 ± 0.012", "0.100")


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (None, "no test"),
        (0.0, "p < 0.001"),
        (0.00321, "p = 0.0032"),
        (0.0499, "p = 0.05"),
        (0.34, "p = 0.34"),
        (1.0, "p = 1.00"),
    ],
)
def test_chances(p: float | None, said: str) -> None:
    assert chance(p) == said


def test_lists() -> None:
    assert [listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed(list("abcdefghi"), 8) == "a, b, c, d, e, f, g, h and i"
    assert listed(list("abcdefghij"), 8) == "a, b, c, d, e, f, g, h and 2 others"
    assert (several(1, "split"), several(1200, "split"), several(2, "class", "classes")) == (
        "1 split",
        "1,200 splits",
        "2 classes",
    )


def test_names() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert shortened("ABCDEFGH", 8) == "ABCDE…"
    assert shortened("a\nb\x1b") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert (capital("macro F1"), capital("k-NN error"), capital("")) == ("Macro F1", "k-NN error", "")
