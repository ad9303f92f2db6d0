"""The audit: a file of JSON lines that say who administered what, from where, with which result."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import orjson

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.security.principal import Principal
from headwater.core_log.storage.files import Files, write_all

logger = logging.getLogger(__name__)
FILE_NAME = "audit.log"
FILE_BYTES_MAX = 16 << 20
FILES_MAX = 5
"""The file and its predecessors, `audit.log.1` being the newest of them."""
LINE_BYTES_MAX = 16 << 10
REPEATED_AFTER_MS = 60_000
REFUSALS_KNOWN_MAX = 1_000
READABLE_BY_OWNER = 0o600
SHOWN = frozenset(
    {
        "broker_id",
        "count",
        "entity_name",
        "entity_type",
        "feature",
        "group_id",
        "groups_names",
        "host",
        "host_filter",
        "key",
        "max_version_level",
        "mechanism",
        "name",
        "num_partitions",
        "operation",
        "partition_index",
        "partition_indexes",
        "partitions",
        "permission_type",
        "pattern_type_filter",
        "principal",
        "principal_filter",
        "replicas",
        "resource_name",
        "resource_name_filter",
        "resource_pattern_type",
        "resource_type",
        "resource_type_filter",
        "topic",
        "topic_name",
        "topic_names",
        "topic_id",
        "validate_only",
        "voter_id",
    }
)
"""Fields of requests that are written down. No value of a setting and nothing secret is among
them, and a field of a new API is not shown before it is named here."""


class AuditLog:
    """Owns the file. A line is written before the answer is sent; a disk that refuses it is logged,
    and stops nothing."""

    def __init__(self, files: Files, directory: Path, clock: Clock) -> None:
        self._files, self._path, self._clock = files, directory / FILE_NAME, clock
        self._has_failed = False
        self._refusals: dict[tuple[str, Principal, str], int] = {}
        self._repeated: Counter[tuple[str, Principal, str]] = Counter()

    def note_refusal(
        self, action: str, principal: Principal, host: str, result: str, what: object = None
    ) -> bool:
        """Notes a refusal; the same again within a minute is only counted, so that nobody can fill
        the file. Returns whether it was noted."""
        key, now_ms = (action, principal, host), self._clock.now_ms()
        if now_ms - self._refusals.get(key, -REPEATED_AFTER_MS) < REPEATED_AFTER_MS:
            self._repeated[key] += 1
            return False
        if len(self._refusals) >= REFUSALS_KNOWN_MAX:
            self._refusals.clear()
            self._repeated.clear()
        self._refusals[key] = now_ms
        repeated = self._repeated.pop(key, 0)
        more: dict[str, object] = {"repeated": repeated} if repeated else {}
        self.note(action, principal, host, result, what, **more)
        return True

    def note(
        self,
        action: str,
        principal: Principal,
        host: str,
        result: str,
        what: object = None,
        **more: object,
    ) -> None:
        line = {
            "time_ms": self._clock.now_ms(),
            "principal": str(principal),
            "host": host,
            "action": action,
            "result": result,
            **more,
        }
        if what is not None:
            line["request"] = what
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if len(data) > LINE_BYTES_MAX:
            line["request"] = "too long to be shown"
            data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        try:
            self._append(data)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                logger.error("the audit cannot be written: %s", error)
            self._has_failed = True

    def _append(self, data: bytes) -> None:
        if not self._files.exists(self._path):
            self._files.replace(self._path, b"", mode=READABLE_BY_OWNER)
        size = self._files.size(self._path)
        if size + len(data) > FILE_BYTES_MAX:
            self._rotate()
            size = 0
        write_all(self._files.open(self._path), size, data)

    def _rotate(self) -> None:
        for number in range(FILES_MAX - 1, 0, -1):
            newer = self._name(number - 1)
            if self._files.exists(newer):
                self._files.rename(newer, self._name(number))
        self._files.replace(self._path, b"", mode=READABLE_BY_OWNER)

    def _name(self, number: int) -> Path:
        return self._path.with_name(f"{FILE_NAME}.{number}") if number else self._path


def summary_of(request: Any) -> dict[str, object]:
    """Returns what of a request is written down."""
    shown: dict[str, object] = {}
    for each in fields(request):
        value = getattr(request, each.name)
        if isinstance(value, list | tuple) and value and is_dataclass(value[0]):
            parts = [summary_of(part) for part in value]
            if any(parts):
                shown[each.name] = parts
        elif each.name in SHOWN and value not in (None, "", (), []) and value is not False:
            shown[each.name] = value
    return shown


def result_of(response: Any) -> str:
    """Returns the names of all errors of a response, or `ok`."""
    codes = dict.fromkeys(ErrorCode(code).name for code in _codes_in(response) if code)
    return ",".join(codes) or "ok"


def _codes_in(response: Any) -> Iterator[int]:
    for each in fields(response):
        value = getattr(response, each.name)
        if each.name.endswith("error_code"):
            yield value
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for part in value:
                if is_dataclass(part):
                    yield from _codes_in(part)
