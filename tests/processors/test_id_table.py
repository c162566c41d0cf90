"""The table of hashes answers as a dict would."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base.id_table import HashIndex, IdTable, hashes

NAMES = st.integers(0, 40).map(str)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "find"]), st.lists(NAMES, max_size=30)))


def test_a_hash_is_that_of_the_standard_library() -> None:
    (found,) = hashes(["Käse"])
    assert found.astype("<u8").tobytes() == blake2b("Käse".encode(), digest_size=16).digest()
    assert hashes([]).shape == (0, 2)


@settings(deadline=None)
@given(STEPS)
def test_numbers_are_those_of_a_dict(steps: list[tuple[str, list[str]]]) -> None:
    table = IdTable()
    expected: dict[str, int] = {}
    given_out: list[str | None] = []
    for action, names in steps:
        if action == "add":
            for name in names:
                if name not in expected:
                    expected[name] = len(given_out)
                    given_out.append(name)
            assert table.add(hashes(names)).tolist() == [expected[name] for name in names]
        elif action == "remove":
            wanted = []
            for name in names:
                wanted.append(expected.pop(name, -1))
                if wanted[-1] >= 0:
                    given_out[wanted[-1]] = None
            assert table.remove(hashes(names)).tolist() == wanted
        else:
            assert table.find(hashes(names)).tolist() == [expected.get(name, -1) for name in names]
        assert (len(table), table.numbered) == (len(expected), len(given_out))
    restored = IdTable()
    restored.restore(*table.rows())
    every = [str(n) for n in range(41)]
    assert restored.find(hashes(every)).tolist() == [expected.get(name, -1) for name in every]
    assert restored.add(hashes(["new"])).tolist() == [len(given_out)]
    numbers = np.arange(len(given_out))
    assert table.gone(numbers).tolist() == [name is None for name in given_out]
    for number, owner in enumerate(given_out):
        want = [0, 0] if owner is None else hashes([owner])[0].tolist()
        assert table.hashes_of(np.array([number]))[0].tolist() == want


def test_a_table_that_is_filled_and_emptied_does_not_grow() -> None:
    index = HashIndex()
    sizes = set()
    for turn in range(200):
        keys = hashes([f"{turn}-{n}" for n in range(100)])
        index.set(keys, np.arange(100))
        assert index.remove(keys).tolist() == list(range(100))
        sizes.add(index.nbytes)
    assert len(index) == 0
    assert max(sizes) <= 24 * 512
