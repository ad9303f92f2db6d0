"""What a dead letter holds, decoded for people by the schema under which it was written."""

import pyarrow as pa

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import Operation
from headwater.core_log.rows.codec import SCHEMA_HEADER
from headwater.core_log.rows.codec_table import codec_for
from headwater.pipelines.dead_letters.dead_letter import DeadLetter
from headwater.pipelines.dead_letters.row_display import shown_bytes, to_json_value
from headwater.pipelines.journal.schemas import SchemaReader


async def content_of(letter: DeadLetter, schemas: SchemaReader) -> object:
    """The operation and the row; the bytes as text where they cannot be decoded, which may be the
    very reason why they are here."""
    try:
        return await _decode(letter, schemas)
    except HeadwaterError:
        return shown_bytes(letter.value or b"")


async def _decode(letter: DeadLetter, schemas: SchemaReader) -> object:
    number = dict(letter.headers).get(SCHEMA_HEADER)
    if number is None or letter.value is None:
        return shown_bytes(letter.value or b"")
    stored = await schemas.find(letter.topic, int(number))
    changes = codec_for(stored.wire, topic=letter.topic).decode(
        pa.array([letter.key], pa.binary()), pa.array([letter.value], pa.binary()), stored.schema
    )
    [operation], [row] = changes.operations.to_pylist(), changes.rows.to_pylist()
    return {"operation": Operation(operation).name.lower(), "row": to_json_value(row)}
