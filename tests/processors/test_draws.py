"""The draws of an event are those of a generator that is made for its key alone."""

from __future__ import annotations

import threading

import numpy as np

from kinstream.processors.base.draws import event_key, raw_draws
from kinstream.streams.records.values import SampleBlock, Table

BLOCK = SampleBlock("space", (Table("x", np.zeros((1, 1), np.float32)),), np.zeros(1, np.int64), 0)


def _wanted(offset: int, count: int) -> list[int]:
    key = event_key("one-pass", 3, "space", None, offset)
    found: list[int] = np.random.Philox(key=key).random_raw(count).tolist()
    return found


def test_no_draw_depends_on_those_before_it() -> None:
    for offset, count in ((0, 1), (1, 3), (1, 3), (2, 4), (3, 9), (4, 0), (0, 257), (5, 2)):
        assert raw_draws("one-pass", 3, BLOCK, offset, count).tolist() == _wanted(offset, count)


def test_threads_draw_at_the_same_time() -> None:
    wrong: list[int] = []

    def draw(first: int) -> None:
        for offset in range(first, first + 300):
            if raw_draws("one-pass", 3, BLOCK, offset, 5).tolist() != _wanted(offset, 5):
                wrong.append(offset)

    threads = [threading.Thread(target=draw, args=(1_000 * n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
