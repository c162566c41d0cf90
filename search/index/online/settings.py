"""Settings of an index, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from kinstream.learners.base.validation import not_negative, one_of, positive, whole
from kinstream.streams.errors import SettingsError

#: Settings of earlier versions, which chose another way to find stale bits.
_GONE: Final = ("stale", "limit", "retrieved")
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
    monitor : number of monitored hyperplanes, a random subset; None means 8, or all if there are fewer. `lazy` keeps
        their bits up to date; the others stay until the next rebuild, so keys are approximate, and distances never are.
    sample : number of monitored items, a random subset; None means all.
    rule : all keys are recomputed when more than `share` of the monitored items have had a bit flip since the last
        time ("items"), or of the monitored bits ("bits").
    share : see `rule`.
    dtype : "float64" or "float32", in which items are stored and first compared. Distances are always calculated in
        float64, from the items as stored.
    """

    bits: int = 128
    seed: int = 0
    eps: float = 0.5
    candidates: float = 1.0
    monitor: int | None = None
    sample: int | None = 1_024
    rule: str = "bits"
    share: float = 0.2
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
            if name in _GONE:
                raise SettingsError(
                    f"{name} was removed: lazy follows its monitored hyperplanes; leave it out, or use the index exact"
                )
            if name not in known:
                raise SettingsError(f"an index has no setting {name!r}; it has {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        whole("bits", self.bits, 1)
        whole("seed", self.seed, 0)
        positive("eps", self.eps)
        positive("candidates", self.candidates)
        if self.monitor is not None and whole("monitor", self.monitor, 1) > self.bits:
            raise SettingsError(f"monitor must be at most bits, {self.bits}, not {self.monitor}")
        if self.sample is not None:
            whole("sample", self.sample, 1)
        one_of("rule", self.rule, RULES)
        not_negative("share", self.share)
        one_of("dtype", self.dtype, DTYPES)

    @property
    def monitored(self) -> int:
        """Number of hyperplanes kept up to date."""
        return min(MONITORED, self.bits) if self.monitor is None else self.monitor

    def budget(self, n: int, k: int) -> int:
        """Number of candidates that a search for k of n items measures."""
        if n == 0:
            return 0
        wanted = math.ceil(self.candidates * n ** (1.0 / (1.0 + self.eps)))
        return int(min(n, max(wanted, PER_NEIGHBOUR * k)))
