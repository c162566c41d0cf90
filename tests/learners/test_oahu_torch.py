"""OAHU through torch: threads, a GPU where there is one, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.learners.oahu.learner import OAHU
from kinstream.streams.errors import SettingsError
from kinstream.testing.learners import digest
from tests.learners.test_oahu import VARIANTS, apart, triplets_of


@pytest.fixture(scope="module")
def torch() -> Any:
    """Imported here and not when tests are collected, which all processes of pytest do."""
    return pytest.importorskip("torch")


def test_bits_of_torch_do_not_depend_on_threads(torch: Any) -> None:
    before, states = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            reference = OAHU(path="torch", batch=16, hidden=300)
            reference.learn_triplets(*triplets_of(1, 64, 400))
            assert torch.get_num_threads() == threads
            states.append(digest(reference.state()))
    finally:
        torch.set_num_threads(before)
    assert len(set(states)) == 1


@pytest.mark.parametrize(("dtype", "room"), [("float64", 1e-8), ("float32", 1e-3)])
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gpu_agrees_to_its_rounding(torch: Any, variant: str, batch: int, dtype: str, room: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    here, there = (OAHU(variant, dtype=dtype, path=path, batch=batch) for path in ("torch", "cuda"))
    T = triplets_of(3, 320, 17)
    for start in range(0, 320, 16):
        some = T[:, start : start + 16]
        found, wanted = there.learn_triplets(*some), here.learn_triplets(*some)
        np.testing.assert_allclose(found.loss, wanted.loss, rtol=0, atol=room)
        assert apart(there, here) <= room
        there.restore(here.state())


def test_torch_says_what_it_misses(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="path must be one of compiled, torch, cuda, not 'tpu'"):
        OAHU(path="tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="torch sees none"):
        OAHU(path="cuda")
    monkeypatch.setattr("kinstream.streams.extras.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'kinstream\[torch\]'"):
        OAHU(path="torch")
    OAHU()
