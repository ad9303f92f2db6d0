"""The progress of one table's reading, and its form, as parts of the source position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from headwater.connectors.snapshot import reread_limits
from headwater.core_log.foundation.errors import DecodeError, check_format
from headwater.core_log.model.table_schema import TableId

FORMAT_VERSION = 1
PROGRESS, FORM = "snapshot/", "form/"
"""Prefixes of these parts."""


def progress_part(table: TableId) -> str:
    return f"{PROGRESS}{_name_of(table)}"


def form_part(table: TableId) -> str:
    return f"{FORM}{_name_of(table)}"


def _name_of(table: TableId) -> str:
    """Returns the name with one dot between database and table: a dot of the database is encoded,
    and one of the table comes later."""
    return str(TableId(table.namespace.replace("%", "%25").replace(".", "%2E"), table.name))


def table_of(name: str) -> TableId:
    """Returns the table of a part, without its prefix."""
    namespace, _, table = name.partition(".")
    return TableId(namespace.replace("%2E", ".").replace("%25", "%"), table)


def form_text(form: Mapping[str, Any]) -> str:
    return orjson.dumps({"version": FORMAT_VERSION, **form}).decode()


def parse_form(text: str) -> Mapping[str, Any]:
    try:
        form: Mapping[str, Any] = orjson.loads(text)
    except ValueError:
        raise DecodeError("a part of the position is not the form of a table") from None
    return form


@dataclass(frozen=True, slots=True)
class MysqlTableProgress:
    """With `is_done` it is kept for ever, so that the table is not read again."""

    last: tuple[bytes, ...] | None = None
    """The key's cells of the last row that was emitted; None before the first."""
    rows: int = 0
    is_done: bool = False
    is_paused: bool = False
    signal: str = ""
    """The id of its signal."""
    reread: str = ""
    """The reason of a re-read; at its end, rows that no longer exist are deleted."""
    kinds: tuple[str, ...] = ()
    """Kinds of the schema changes behind it that no person has permitted."""
    has_other_key: bool = False
    """The log's rows may have another key, so that none are streamed before the re-read starts."""
    is_started: bool = False
    """Its start is the last of `starts_ms`: the log knows where its rows begin."""
    is_keyless: bool = False
    """The log has rows of the table without a key."""
    is_permitted: bool = False
    is_stopped: bool = False
    starts_ms: tuple[int, ...] = ()
    """Start times of the last few re-reads."""

    @property
    def awaits_other_key(self) -> bool:
        """Whether a re-read is to come, and the log's rows may have another key until then."""
        return bool(self.reread) and self.has_other_key and not self.is_started

    def advance(self, last: Sequence[bytes], *, rows: int) -> "MysqlTableProgress":
        return replace(self, last=tuple(last), rows=self.rows + rows)

    def restart(self) -> "MysqlTableProgress":
        """Returns the progress from the first row again."""
        return replace(self, last=None, rows=0)

    def finish(self) -> "MysqlTableProgress":
        return MysqlTableProgress(
            rows=self.rows, is_done=True, is_keyless=self.is_keyless, starts_ms=self.starts_ms
        )

    def again(
        self, why: str, kinds: Sequence[str] = (), *, has_other_key: bool = False
    ) -> "MysqlTableProgress":
        return MysqlTableProgress(
            reread=why,
            has_other_key=has_other_key or (self.has_other_key and not self.is_started),
            kinds=tuple(dict.fromkeys((*self.kinds, *kinds))),
            is_paused=self.is_paused,
            is_keyless=self.is_keyless,
            is_stopped=self.is_stopped,
            starts_ms=self.starts_ms,
        )

    def permit(self) -> "MysqlTableProgress":
        return replace(self, kinds=(), is_permitted=True, is_stopped=False, is_paused=False)

    def start(self, now_ms: int) -> "MysqlTableProgress":
        return replace(
            self, is_started=True, starts_ms=reread_limits.add_start(self.starts_ms, now_ms)
        )

    def is_one_too_many(self, now_ms: int) -> bool:
        return not self.is_started and reread_limits.is_one_too_many(self.starts_ms, now_ms)

    def text(self) -> str:
        said: dict[str, Any] = {"version": FORMAT_VERSION, "rows": self.rows}
        if self.last is not None:
            said["last"] = [cell.hex() for cell in self.last]
        flags = {
            "done": self.is_done, "paused": self.is_paused, "started": self.is_started,
            "permitted": self.is_permitted, "stopped": self.is_stopped,
            "other_key": self.has_other_key, "keyless": self.is_keyless,
        }  # fmt: skip
        said |= {name: True for name, is_set in flags.items() if is_set}
        texts = {"wish": self.signal, "reread": self.reread}
        said |= {name: text for name, text in texts.items() if text}
        lists = {"kinds": self.kinds, "starts": self.starts_ms}
        said |= {name: values for name, values in lists.items() if values}
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "MysqlTableProgress":
        try:
            said = orjson.loads(text)
            check_format(said["version"], FORMAT_VERSION, "the progress of a snapshot was stored")
            last = said.get("last")
            return cls(
                last=None if last is None else tuple(bytes.fromhex(cell) for cell in last),
                rows=said["rows"],
                is_done=said.get("done", False),
                is_paused=said.get("paused", False),
                signal=said.get("wish", ""),
                reread=said.get("reread", ""),
                kinds=tuple(said.get("kinds", ())),
                has_other_key=said.get("other_key", False),
                is_keyless=said.get("keyless", False),
                is_started=said.get("started", False),
                is_permitted=said.get("permitted", False),
                is_stopped=said.get("stopped", False),
                starts_ms=tuple(said.get("starts", ())),
            )
        except (KeyError, ValueError, TypeError):
            raise DecodeError("a part of the position is not one of a snapshot") from None
