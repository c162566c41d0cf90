"""The guarantees that a replay keeps, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

_VERSIONS = "Nothing is promised across versions of numpy, numba and Python or across CPU targets"


class LogKind(StrEnum):
    """The kind of the messages."""

    CONSTRAINTS = "constraints"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Claim:
    """The guarantees of a replay.

    Parameters
    ----------
    learners : names of those whose state is bit-identical to their agents'.
    builders : likewise.
    sentences : the same as text, with exceptions and limits.
    """

    learners: tuple[str, ...]
    builders: tuple[str, ...]
    sentences: tuple[str, ...]


def claim(
    origin: LogKind,
    follows: Mapping[str, Sequence[str]],
    against: Sequence[str] = (),
    unconfirmed: Sequence[str] = (),
    foreign: Sequence[str] | None = None,
) -> Claim:
    """State the claim.

    Parameters
    ----------
    follows : per replayed learner, the builders that it follows.
    against : clauses with the differences from the agents; with any, nothing is claimed.
    unconfirmed : clauses that name agents without a birth record here; the claim is then conditional.
    foreign : versions of the checkpoints that differ from this process's; None if no checkpoint was read.
    """
    builders = (
        sorted({b for some in follows.values() for b in some}) if origin is not LogKind.CONSTRAINTS else []
    )
    certain = [name for name, some in follows.items() if origin is LogKind.CONSTRAINTS or len(some) == 1]
    mixed = [name for name in follows if name not in certain]
    reasons = [*against, *(f"the checkpoints were made with {text}" for text in foreign or ())]
    if reasons:
        sentences = [f"Bit-identity with the agents is not claimed: {'; '.join(reasons)}."]
        sentences.append("Two replays of the same input with the same settings still end in the same bits.")
        return Claim((), (), (*sentences, _promise(foreign)))
    if origin is LogKind.CONSTRAINTS:
        sentences = [f"Replay from constraints is bit-identical to the agents: {_names('learner', certain)}."]
    else:
        sentences = [
            f"Replay from events is bit-identical in every builder's output: {_names('builder', builders)}."
        ]
    if certain and builders:
        sentences.append(
            f"One builder feeds {_names('learner', certain)}, so the learned state is bit-identical too."
        )
    if mixed:
        sentences.append(
            f"Several builders feed {_names('learner', mixed)}; their interleaving is known to the constraints topic "
            "alone, so the learned state is not claimed to be the agents': use --from constraints."
        )
    if unconfirmed:
        sentences.append(
            "This holds for agents that began at the start of this log with these settings, which nothing here "
            f"confirms: {'; '.join(unconfirmed)}."
        )
    return Claim(tuple(certain), tuple(builders), (*sentences, _promise(foreign)))


def _promise(foreign: Sequence[str] | None) -> str:
    if foreign is None:
        return f"{_VERSIONS}; --compare checks both against the checkpoints."
    if foreign:
        return f"{_VERSIONS}, and they differ here."
    return f"{_VERSIONS}; they are those of the checkpoints."


def _names(what: str, names: Sequence[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names) or 'none'}"
