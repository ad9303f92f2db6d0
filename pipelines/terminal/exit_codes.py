"""The exit codes of every command, and which error ends in which."""

from headwater.core_log.foundation.errors import (
    BatchRejected,
    BeingReadAgain,
    ConfigError,
    CorruptLog,
    DecodeError,
    DirectoryInUse,
    DiskFull,
    HeadwaterError,
    LogRejected,
    LogUnavailable,
    OffsetOutOfRange,
    OlderBrokers,
    PositionLost,
    RecordsRejected,
    RegistryRejected,
    RegistryUnavailable,
    SinkRejected,
    SinkUnavailable,
    SourceRejected,
    SourceUnavailable,
    StorageFailed,
    TableFailed,
    TransformFailed,
    UnreadableBatch,
)
from headwater.pipelines.terminal.output import DependencyMissing, DifferencesFound

OK = 0
INTERNAL = 1
INVALID = 2
UNREACHABLE = 3
DIFFERENT = 4
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    OK: "done",
    INTERNAL: "internal error, a bug of Headwater, with its traceback",
    INVALID: "invalid input or configuration",
    UNREACHABLE: "a dependency cannot be reached or used: broker, disk, data directory in use",
    DIFFERENT: "differences found: damage in a log, rows that are not equal, tables not delivered",
    INTERRUPTED: "ended by SIGINT (Ctrl-C)",
    TERMINATED: "ended by SIGTERM",
}

BY_ERROR: dict[type[HeadwaterError], int] = {
    ConfigError: INVALID,
    LogRejected: INVALID,
    BatchRejected: INVALID,
    OffsetOutOfRange: INVALID,
    TransformFailed: INVALID,
    RecordsRejected: INVALID,
    LogUnavailable: UNREACHABLE,
    StorageFailed: UNREACHABLE,
    OlderBrokers: UNREACHABLE,
    DiskFull: UNREACHABLE,
    SourceUnavailable: UNREACHABLE,
    SourceRejected: UNREACHABLE,
    SinkUnavailable: UNREACHABLE,
    SinkRejected: UNREACHABLE,
    RegistryUnavailable: UNREACHABLE,
    RegistryRejected: UNREACHABLE,
    UnreadableBatch: DIFFERENT,
    DecodeError: UNREACHABLE,  # what answered speaks another protocol
    DirectoryInUse: UNREACHABLE,  # as it is, the command is right: it waits for another process
    DifferencesFound: DIFFERENT,
    DependencyMissing: UNREACHABLE,
    CorruptLog: DIFFERENT,
    PositionLost: DIFFERENT,
    BeingReadAgain: DIFFERENT,
    TableFailed: DIFFERENT,
}


class Interrupted(Exception):
    """A signal ended the command, drained or not."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


def exit_code_of(error: HeadwaterError) -> int:
    """The code of the nearest class in the table."""
    for kind in type(error).__mro__:
        if kind in BY_ERROR:
            return BY_ERROR[kind]
    return INTERNAL
