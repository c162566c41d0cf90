"""The generations of an agent: the number of the newest, and the birth record of each."""

from __future__ import annotations

from typing import Final

from kinstream.streams.agents.generations.birth import Birth, read_birth
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.files import Files
from kinstream.streams.checkpoints.names import file_name, open_files
from kinstream.streams.errors import CheckpointError, GenerationMismatch
from kinstream.streams.settings import Settings

#: File beside the generations that holds the number of the newest.
_NEWEST: Final = "newest"


def newest_generation(settings: Settings, application: str) -> int | None:
    """The highest generation that was begun, or None."""
    try:
        return int(_beside(settings, application).read(_NEWEST))
    except FileNotFoundError:
        # A worker died right after writing the first birth record.
        return None if read_birth(settings.checkpoints.url, application, 1) is None else 1
    except ValueError as error:
        raise CheckpointError(
            f"{settings.checkpoints.shown}: {application}/{_NEWEST} holds no number"
        ) from error


def make_newest(settings: Settings, application: str, number: int) -> None:
    """Make every later start open that generation.

    Raises
    ------
    CheckpointError : the store refuses.
    """
    _beside(settings, application).write([(_NEWEST, str(number).encode())])


def _beside(settings: Settings, application: str) -> Files:
    return open_files(settings.checkpoints.url, file_name(application))


def recorded(settings: Settings, spec: AgentSpec, number: int) -> Birth:
    """The birth record of a generation that must have one.

    Raises
    ------
    GenerationMismatch : it is gone.
    """
    birth = read_birth(settings.checkpoints.url, spec.application, number)
    if birth is None:
        raise GenerationMismatch(
            f"{spec.application} has no birth record of generation {number} under {settings.checkpoints.shown}. Bring "
            f"the file back from a copy, or read the log again: {spec.command} --new-generation --from-start "
            "(consumers then count again)"
        )
    return birth
