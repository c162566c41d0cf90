"""A state comes back exactly as it was, and the same state is always the same bytes."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kinstream.streams.checkpoints.state_bytes import State, from_bytes, to_bytes
from kinstream.streams.errors import CheckpointError

SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63, max_value=2**200),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=40),
)
ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in ("bool", "int8", "uint64", "int64", "float32", "float64")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
NAMES = st.text(max_size=20).filter(lambda name: name != "__metadata__")


def same(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)
    return type(left) is type(right) and left == right


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, SCALARS | ARRAYS, max_size=6))
def test_every_state_comes_back_as_it_was(state: State) -> None:
    data = to_bytes(state)
    read = from_bytes(data)
    assert list(read) == sorted(state)
    assert all(same(read[name], state[name]) for name in state)
    assert to_bytes(read) == data
    assert to_bytes(dict(reversed(state.items()))) == data


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 10**40, -1 << 20_000, 0], ids=lambda n: str(n.bit_length())
)
def test_integers_of_any_size_are_exact(value: int) -> None:
    assert from_bytes(to_bytes({"n": value}))["n"] == value


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 5e-324, 0.1])
def test_floats_are_exact(value: float) -> None:
    assert same(from_bytes(to_bytes({"x": value}))["x"], value)


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib, numpy as np; from kinstream.streams.checkpoints.state_bytes import to_bytes;"
        "names = {f'name{i}' for i in range(40)};"
        "state = {n: np.full(3, int(n[4:])) if n[-1] in '02468' else n for n in names};"
        "print(hashlib.sha256(to_bytes(state)).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        )
        digests.add(run.stdout.decode().strip())
    names = [f"name{i}" for i in range(40)]
    state: State = {n: np.full(3, int(n[4:])) if n[-1] in "02468" else n for n in names}
    assert digests == {hashlib.sha256(to_bytes(state)).hexdigest()}


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20.0).reshape(4, 5)[::2, ::-1],
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.broadcast_to(np.arange(3), (2, 3)),
        np.array(7.0),
        np.zeros((0, 5), np.float32),
    ],
    ids=["fortran", "strided", "big-endian", "broadcast", "0-d", "empty"],
)
def test_memory_layout_leaves_no_trace(array: np.ndarray) -> None:
    read = from_bytes(to_bytes({"a": array}))["a"]
    assert isinstance(read, np.ndarray)
    np.testing.assert_array_equal(read, array)
    assert read.shape == array.shape
    assert read.flags.c_contiguous
    assert read.flags.writeable
    assert to_bytes({"a": array}) == to_bytes({"a": read})


def test_a_long_string_is_no_burden_on_the_header() -> None:
    names = '["' + '", "'.join(f"item {number} \\u00e9 \ud800" for number in range(100_000)) + '"]'
    data = to_bytes({"names": names})
    assert int.from_bytes(data[:8], "little") < 1000
    assert from_bytes(data)["names"] == names


@pytest.mark.parametrize(
    "value",
    [np.float64(1), np.int32(1), np.array(["a"]), np.array([object()]), np.array([1j]), None, [1], b"x"],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_what_could_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match="'x'"):
        to_bytes({"x": value})  # type: ignore[dict-item]


def test_a_masked_array_and_a_reserved_name_are_refused() -> None:
    with pytest.raises(CheckpointError, match="MaskedArray"):
        to_bytes({"x": np.ma.masked_array([1, 2], [True, False])})
    with pytest.raises(CheckpointError, match="reserved"):
        to_bytes({"__metadata__": 1})


def test_torn_and_foreign_bytes_are_refused() -> None:
    data = to_bytes({"a": np.arange(4), "n": 1})
    for length in range(len(data)):
        with pytest.raises(CheckpointError):
            from_bytes(data[:length])
    foreign = b'{"a":{"dtype":"I64","shape":[0],"data_offsets":[0,0]}}'
    with pytest.raises(CheckpointError):
        from_bytes(len(foreign).to_bytes(8, "little") + foreign)


def test_a_later_format_says_so() -> None:
    data = to_bytes({"n": 1}).replace(b'\\"format\\":1', b'\\"format\\":9')
    with pytest.raises(CheckpointError, match="format 9 is newer"):
        from_bytes(data)
