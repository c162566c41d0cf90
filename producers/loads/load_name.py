"""The name of a load: its space, and an id from the user or from a digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kinstream.producers.files.text import fault_of
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.checks import MAX_STRING_LENGTH, check_space

_LOAD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def checked_space(space: str) -> str:
    """Check the name of a space.

    Raises
    ------
    SettingsError : the name is invalid.
    """
    try:
        return check_space(space)
    except BadRecord as error:
        raise SettingsError(error.detail) from error


def check_modalities(modalities: Iterable[tuple[str, int]]) -> None:
    """Refuse a modality whose name does not fit a record, with SettingsError."""
    for name, _ in modalities:
        if (fault := fault_of(name)) is not None:
            raise SettingsError(f"the name of a modality {fault}")
        if len(name) > MAX_STRING_LENGTH:
            raise SettingsError(f"the name of a modality is longer than {MAX_STRING_LENGTH} characters")


def check_load_id(load_id: str | None) -> None:
    """Refuse an invalid id, with SettingsError. None means the digest."""
    if load_id is not None and not _LOAD_ID.fullmatch(load_id):
        raise SettingsError(f"a load id is up to 100 letters, digits, dots and dashes, not {load_id!r}")


def digest_id(shaping: Mapping[str, Any]) -> str:
    """The id of a load that the user has not named."""
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:32]
