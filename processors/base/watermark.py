"""The progress of a space's events, measured by their own times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Times = NDArray[np.int64]


class Watermark:
    """The largest time of any accepted event, as long as the log bears it out.

    Where it is further ahead of the log's time than an event may be, an earlier time of the log was wrong, such as that
    of a broker whose clock was ahead. Then the log's time takes its place, and what comes next is not late.

    Parameters
    ----------
    max_ahead_ms : an event whose time is further ahead of its log's is refused, and does not move the watermark.
    max_late_ms : an event that is further behind the watermark is late.

    Examples
    --------
    >>> import numpy as np
    >>> mark = Watermark(max_ahead_ms=1000, max_late_ms=100)
    >>> ahead, late = mark.judge(np.array([500, 9000, 300]), append_ms=600)
    >>> ahead.tolist(), late.tolist(), mark.time_ms
    ([False, True, False], [False, False, True], 500)

    A log whose clock was wrong:

    >>> ahead, late = mark.judge(np.array([900_000]), append_ms=900_000)
    >>> ahead, late = mark.judge(np.array([700]), append_ms=700)
    >>> late.tolist(), mark.time_ms
    ([False], 700)
    """

    def __init__(self, max_ahead_ms: int, max_late_ms: int) -> None:
        self.max_ahead_ms = max_ahead_ms
        self.max_late_ms = max_late_ms
        #: -1 before the first event.
        self.time_ms = -1

    def judge(self, times: Times, append_ms: int) -> tuple[Flags, Flags]:
        """Apply events in order; returns which are ahead of the log, and which are late.

        Parameters
        ----------
        times : (n,) of the events.
        append_ms : of the record in its log. 0 for a log without append times: then no event is ahead of it.
        """
        if 0 < append_ms < self.time_ms - self.max_ahead_ms:
            self.time_ms = append_ms
        ahead = times > append_ms + self.max_ahead_ms if append_ms > 0 else np.zeros(len(times), np.bool_)
        reached = np.maximum.accumulate(np.concatenate([[self.time_ms], np.where(ahead, -1, times)]))
        late = ~ahead & (times < reached[:-1] - self.max_late_ms)
        self.time_ms = int(reached[-1])
        return ahead, late
