"""Who owns a data directory, as far as its files say."""

import os
from contextlib import suppress
from pathlib import Path

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint, decode_endpoint
from headwater.core_log.foundation.errors import DecodeError

LOCK = "lock"


def find_owner(data: Path) -> Endpoint | None:
    """None while nobody who lives says where to be found."""
    with suppress(DecodeError):
        return read_owner(data)
    return None


def read_owner(data: Path) -> Endpoint | None:
    """The same; raises `DecodeError` where the file is none of ours."""
    with suppress(FileNotFoundError, NotADirectoryError):
        endpoint = decode_endpoint((data / FILE_NAME).read_bytes())
        if is_running(endpoint.pid):
            return endpoint
    return None


def is_opened(data: Path) -> bool:
    """Whether another process has locked the directory, as far as the lock's file says."""
    try:
        pid = int((data / LOCK).read_bytes())
    except (OSError, ValueError):
        return False
    return pid != os.getpid() and is_running(pid)


def is_running(pid: int) -> bool:
    """Whether a process of that number exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
