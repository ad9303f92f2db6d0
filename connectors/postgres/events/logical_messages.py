"""Logical messages, as events that belong to no table."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.connectors.postgres.events.source_block import SourceOrigin
from headwater.connectors.postgres.wal.wal_batch import WalMessage
from headwater.core_log.model.changes import EventMessages, source_times
from headwater.core_log.model.table_schema import TableId

NO_TABLE = TableId("", "")
CONTENTS: Mapping[str, Callable[[bytes], str]] = {
    "bytes": lambda content: b64encode(content).decode(),
    "base64": lambda content: b64encode(content).decode(),
    "base64-url-safe": lambda content: urlsafe_b64encode(content).decode(),
    "hex": bytes.hex,
}
"""By the setting `binary` of the source."""


@dataclass(frozen=True, slots=True)
class MessageTime:
    """The time of a message's transaction, or of the last one before it."""

    committed_us: int
    last_end: int | None
    xid: int | None


def messages(
    found: Iterable[tuple[WalMessage, MessageTime]],
    blocks: Iterable[Mapping[str, Any] | None],
    origin: SourceOrigin,
    *,
    form: str,
    now_ms: int,
) -> EventMessages | None:
    """Returns the events with Debezium's fields, in its order; `blocks` has the place of each in
    its transaction."""
    keys, values = [], []
    for (message, moment), place in zip(found, blocks, strict=True):
        before = message.lsn if message.transaction is None else moment.last_end
        block = origin.block(
            NO_TABLE,
            source_times(moment.committed_us),
            snapshot="false",
            sequence=sequence_text(before, message.lsn),
            xid=moment.xid,
            lsn=message.lsn,
        )
        said = {"prefix": message.prefix, "content": CONTENTS[form](message.content)}
        keys.append({"prefix": message.prefix})
        values.append(
            {"op": "m", "ts_ms": now_ms, "source": block, "transaction": place, "message": said}
        )
    return EventMessages.of("message", keys, values) if keys else None


def sequence_text(before: int | None, lsn: int) -> str:
    return f'[{"null" if before is None else chr(34) + str(before) + chr(34)},"{lsn}"]'
