"""Settings of an index, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from kinstream.learners.validation import not_negative, one_of, positive, whole
from kinstream.streams.errors import SettingsError

STALE: Final = ("exact", "second-level")
RULES: Final = ("items", "bits")
DTYPES: Final = ("float64", "float32")
#: Candidates for each neighbour that is asked for, at the least.
PER_NEIGHBOUR: Final = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an index.

    Parameters
    ----------
    bits : of a key.
    seed : of the random hyperplanes, and of what is sampled.
    eps : a search for k looks at M = ceil(candidates n^(1 / (1 + eps))) of n items, more for a smaller eps; and at 3 k
        where that is more.
    candidates : factor of M.
    stale : how `lazy` finds stale bits. "exact" misses none. "second-level" is the LEGO paper's: it hashes the items
        once more for each monitored hyperplane, and misses some.
    monitor : hyperplanes whose bits are kept up to date, a random subset; the other bits stay as they are until the
        next rebuild, so that keys are approximate; distances never are. None is all of them, and for "second-level",
        which never monitors all, 8.
    sample : items that are monitored, a random subset; None is all of them. Only with `monitor`.
    rule : with `monitor`, all keys are computed anew when more than `share` of the monitored items have had a bit flip
        since the last time ("items"), or of the monitored bits ("bits").
    share : see `rule`.
    limit : without `monitor`, all keys are computed anew when more than this share of their bits could be stale: that
        is then cheaper than looking at them one by one.
    retrieved : share of the items that the second level looks at, for each monitored hyperplane.
    dtype : "float64" or "float32", in which items are stored and first compared. Distances are always calculated in
        float64, from the items as stored.
    """

    bits: int = 128
    seed: int = 0
    eps: float = 0.5
    candidates: float = 1.0
    stale: str = "exact"
    monitor: int | None = None
    sample: int | None = None
    rule: str = "items"
    share: float = 0.1
    limit: float = 0.1
    retrieved: float = 0.1
    dtype: str = "float64"

    @classmethod
    def of(cls, **given: Any) -> Settings:
        """Settings from keywords.

        Raises
        ------
        SettingsError
            A keyword is unknown, or a value out of range.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise SettingsError(f"an index has no setting {name!r}; it has {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        whole("bits", self.bits, 1)
        whole("seed", self.seed, 0)
        positive("eps", self.eps)
        positive("candidates", self.candidates)
        one_of("stale", self.stale, STALE)
        if self.monitor is not None and whole("monitor", self.monitor, 1) > self.bits:
            raise SettingsError(f"monitor must be at most bits, {self.bits}, not {self.monitor}")
        if self.sample is not None:
            whole("sample", self.sample, 1)
            if self.monitored is None:
                raise SettingsError(
                    "sample needs monitor: keys of items outside the sample would go stale unseen"
                )
            if self.stale == "second-level":
                raise SettingsError(
                    "sample goes with stale = exact: the second level looks at a share of the items"
                )
        one_of("rule", self.rule, RULES)
        not_negative("share", self.share)
        not_negative("limit", self.limit)
        if not 0 < self.retrieved <= 1:
            raise SettingsError(f"retrieved must be above 0 and at most 1, not {self.retrieved!r}")
        one_of("dtype", self.dtype, DTYPES)

    @property
    def monitored(self) -> int | None:
        """Hyperplanes that are kept up to date; None for all."""
        if self.monitor is None and self.stale == "second-level":
            return min(8, self.bits)
        return self.monitor

    def budget(self, n: int, k: int) -> int:
        """Candidates that a search for k of n items looks at."""
        if n == 0:
            return 0
        wanted = math.ceil(self.candidates * n ** (1.0 / (1.0 + self.eps)))
        return int(min(n, max(wanted, PER_NEIGHBOUR * k)))
