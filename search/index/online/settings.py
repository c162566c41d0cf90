"""Settings of an index, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from kinstream.learners.shared.validation import not_negative, one_of, positive, whole
from kinstream.streams.errors import SettingsError

#: Methods to find stale bits in a space, and one more for comparisons.
OFFERED: Final = ("monitored", "exact")
STALE: Final = (*OFFERED, "second-level")
#: Number of monitored hyperplanes if `monitor` is not given.
MONITORED: Final = 8
RULES: Final = ("items", "bits")
DTYPES: Final = ("float64", "float32")
#: Least number of candidates per requested neighbour.
PER_NEIGHBOUR: Final = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an index.

    Parameters
    ----------
    bits : of a key.
    seed : of the random hyperplanes, and of samples.
    eps : a search for k measures M = ceil(candidates n^(1 / (1 + eps))) of n items, or 3 k if that is more; a smaller
        eps gives more.
    candidates : factor of M.
    stale : how `lazy` finds stale bits. "monitored" updates the bits of a few random hyperplanes; the others stay until
        the next rebuild, so keys are approximate, and distances never are. "exact" finds every stale bit.
        "second-level" is the LEGO paper's way to find those of the monitored hyperplanes, which misses some; it is for
        comparisons.
    monitor : number of monitored hyperplanes, a random subset; None means 8, or all if there are fewer.
    sample : number of monitored items, a random subset; None means all, as for "second-level".
    rule : all keys are recomputed when more than `share` of the monitored items have had a bit flip since the last
        time ("items"), or of the monitored bits ("bits").
    share : see `rule`.
    limit : with "exact", all keys are recomputed when more than this share of their bits could be stale: that is
        then cheaper than checking them one by one.
    retrieved : share of the items that the second level checks, for each monitored hyperplane.
    dtype : "float64" or "float32", in which items are stored and first compared. Distances are always calculated in
        float64, from the items as stored.
    """

    bits: int = 128
    seed: int = 0
    eps: float = 0.5
    candidates: float = 1.0
    stale: str = "monitored"
    monitor: int | None = None
    sample: int | None = 1_024
    rule: str = "bits"
    share: float = 0.2
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
        one_of("rule", self.rule, RULES)
        not_negative("share", self.share)
        not_negative("limit", self.limit)
        if not 0 < self.retrieved <= 1:
            raise SettingsError(f"retrieved must be above 0 and at most 1, not {self.retrieved!r}")
        one_of("dtype", self.dtype, DTYPES)

    @property
    def monitored(self) -> int | None:
        """Number of hyperplanes kept up to date; None for all."""
        if self.stale == "exact":
            return None
        return min(MONITORED, self.bits) if self.monitor is None else self.monitor

    @property
    def sampled(self) -> int | None:
        """Number of monitored items; None for all."""
        return self.sample if self.stale == "monitored" else None

    def budget(self, n: int, k: int) -> int:
        """Number of candidates that a search for k of n items measures."""
        if n == 0:
            return 0
        wanted = math.ceil(self.candidates * n ** (1.0 / (1.0 + self.eps)))
        return int(min(n, max(wanted, PER_NEIGHBOUR * k)))
