"""The hierarchy of errors. The command line prints them without a traceback."""

from __future__ import annotations

from enum import StrEnum


class KinstreamError(Exception):
    """Base of all errors that Kinstream reports to users: what was wrong, where, and what to do."""

    exit_status = 1


class SettingsError(KinstreamError):
    """A setting is missing, unknown or out of range."""

    exit_status = 2


class PackageMissing(SettingsError):
    """A setting needs a package, or a device, that this machine lacks; the message names the command that installs
    it."""


class CannotListen(SettingsError):
    """A page cannot listen on its address: another process has the port, or this machine lacks the address."""

    exit_status = 3


class FolderInUse(KinstreamError):
    """Another Kinstream process works in that folder; the message names it."""

    exit_status = 3


class OutputFailed(KinstreamError):
    """Standard output cannot be written, for example because its disk is full."""


class SourceError(KinstreamError):
    """A file or data set of a producer cannot be used; the message names file, row and column."""


class BrokerUnavailable(KinstreamError):
    """The brokers did not answer within the deadline."""


class LoginRefused(KinstreamError):
    """A broker refuses the login of this client, or the client does not trust the broker. Waiting does not help."""

    exit_status = 3


class AccessDenied(KinstreamError):
    """The brokers deny this principal an operation that it needs; the message names operation and resource."""

    exit_status = 3


class DeliveryError(KinstreamError):
    """A broker rejected an output or did not confirm it in time. The process must end without another send.

    Parameters
    ----------
    too_large : it was rejected because its topic takes no record of that size.
    """

    def __init__(self, message: str | None, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class DeliveryDenied(DeliveryError):
    """A broker rejected an output because this principal may not write it."""

    exit_status = 3


class ClockWrong(DeliveryError):
    """A broker rejected an output for the time that this machine's clock gave it."""

    exit_status = 3


class CheckpointError(KinstreamError):
    """A checkpoint cannot be written, or none of those found can be read."""


class MemoryShort(KinstreamError):
    """A checkpoint needs more memory than this process may take; the message names the space and the sizes."""

    exit_status = 3

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}. Give the worker more memory, or lower worker.max_resident_bytes if other spaces take it; a "
            "space with fewer items or features begins with a new generation"
        )


class GenerationMismatch(KinstreamError):
    """The birth record of a generation differs from what is found now; the message names commands that resolve it."""

    exit_status = 3


class LogGap(KinstreamError):
    """The log has lost records that the state still needs; the message names the command that accepts the loss."""

    exit_status = 3


class BatchTooLarge(KinstreamError):
    """A compressed batch in the log unpacks to more than the limit of this process."""

    exit_status = 3


class Stalled(KinstreamError):
    """The watchdog saw no progress although there is work to do."""


class OutsideUnavailable(KinstreamError):
    """A system that a record needs, beside Kafka and the checkpoint store, does not answer. The record waits."""


class PartitionTaken(KinstreamError):
    """Another worker took this partition while this one was frozen or cut off; the process starts again."""


class PartitionParked(KinstreamError):
    """A record has ended the worker three times; its partition waits for `kinstream skip`."""


class Reason(StrEnum):
    """Why a record could not be used. The values are the `reason` labels of metrics and dead letters."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown-schema"
    WRONG_KIND = "wrong-kind"
    BAD_SHAPE = "bad-shape"
    NOT_FINITE = "not-finite"
    EMPTY = "empty"
    TOO_LARGE = "too-large"
    WRONG_DIMENSION = "wrong-dimension"
    WRONG_LABEL_TYPE = "wrong-label-type"
    WRONG_KEY = "wrong-key"
    UNKNOWN_SPACE = "unknown-space"
    SPACE_LIMIT = "space-limit"
    SPACE_PAUSED = "space-paused"
    SPACE_DELETED = "space-deleted"
    UNKNOWN_ITEM = "unknown-item"
    UNKNOWN_LIST = "unknown-list"
    CONTRADICTION = "contradiction"
    AHEAD_OF_LOG = "ahead-of-log"
    BAD_IDENTITY = "bad-identity"
    SKIPPED = "skipped"
    # Lists that the gate has left out by a rule against bought clicks.
    CAPPED_USER = "capped-user"
    CAPPED_SESSION = "capped-session"
    CAPPED_ADDRESS = "capped-address"
    CAPPED_ITEM = "capped-item"
    BURST_USER = "burst-user"
    BURST_SESSION = "burst-session"
    BURST_ADDRESS = "burst-address"
    BURST_ITEM = "burst-item"
    # Lists that the gate cannot judge: they are too old by the log's time, or their id is of no key of its own.
    LATE_LIST = "late-list"
    FORGED_LIST = "forged-list"


class BadRecord(KinstreamError):
    """A record, or some of its rows, cannot be used. It goes to dead letters and never stops the stream.

    Parameters
    ----------
    reason : one of a fixed set of words, which metrics count.
    detail : one sentence for readers of the dead letter.
    rows : the failed rows, or None if the whole record failed.
    """

    def __init__(self, reason: Reason, detail: str, rows: tuple[int, ...] | None = None) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
        self.rows = rows
