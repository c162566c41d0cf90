"""What every section of the settings is, and files that hold a secret."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from kinstream.streams.errors import SettingsError
from kinstream.streams.secrets import remember_url, warn_of_readers

MAX_SECRET_BYTES: Final = 4_096
Name = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        description="is made of a-z, 0-9 and -, begins with a letter or a digit, and has at most 63 characters",
    ),
]


class Section(BaseModel):
    """A section: unknown keys are refused, and it never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a boolean: pydantic would read true as 1."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind in (int, float, int | None):
            raise ValueError(f"must be a number, not {str(value).lower()}")
        return value


class KeyFault(ValueError):
    """A fault of a section that one of its keys has caused: its place is the place of that key."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def start_of(path: FilePath, limit: int) -> bytes:
    """A file of at most `limit` bytes. Raises OSError; SettingsError where it is larger, or a pipe or a device.

    To open a pipe would wait for somebody who writes into it.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        kind = os.fstat(number).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(kind):
            raise SettingsError(f"{path}: not a regular file")
        with os.fdopen(number, "rb", closefd=False) as stream:
            found = stream.read(limit + 1)
    finally:
        os.close(number)
    if len(found) > limit:
        raise SettingsError(f"{path}: larger than {limit} bytes")
    return found


def refuse_pipe(path: str) -> None:
    """Raise ValueError for a pipe, a socket or a device. Who opens a pipe waits for somebody who writes into it."""
    try:
        kind = os.stat(path).st_mode
    # Who uses the file says why it cannot be read.
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise ValueError(f"{path}: not a regular file")


def connection_of(connection: SecretStr, file: str) -> str:
    """A connection of the settings, or the content of the file that they name.

    Raises
    ------
    SettingsError : the file cannot be read; the message does not quote its content.
    """
    if not file:
        return connection.get_secret_value()
    try:
        found = secret_in(file)
    except ValueError as error:
        raise SettingsError(f"connection_file: {error}") from None
    remember_url(found)
    return found


def secret_in(file: str) -> str:
    """The content of a file, without the line end that editors add.

    Raises
    ------
    ValueError : it cannot be read, is blank, too large or not text; the message does not quote its content.
    """
    try:
        text = start_of(FilePath(file), MAX_SECRET_BYTES).decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{file}: not text in UTF-8") from None
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None
    except SettingsError as error:
        raise ValueError(str(error)) from None
    if not text.strip():
        raise ValueError(f"{file}: is empty")
    if "\0" in text:
        # Clients in C would send what is before it.
        raise ValueError(f"{file}: not text: it has a zero byte")
    warn_of_readers(file)
    return text


def with_secrets(values: Any, *names: str) -> Any:
    """Settings with the secrets read from the files that they name.

    Raises
    ------
    KeyFault : a secret and its file are both set, or the file cannot be used.
    """
    if not isinstance(values, dict):
        return values
    found = dict(values)
    for name in names:
        file = found.get(f"{name}_file")
        if isinstance(file, str) and file:
            if found.get(name):
                raise KeyFault(f"{name}_file", f"set one of {name} and {name}_file, not both")
            try:
                found[name] = SecretStr(secret_in(file))
            except ValueError as error:
                raise KeyFault(f"{name}_file", str(error)) from None
    return found
