"""Keys of records as JSON objects of the key's columns, in the key's own order."""

from collections.abc import Mapping

import pyarrow as pa

from headwater.core_log.records.row_parts import RowColumn
from headwater.core_log.rows.connect_schema import key_schema, text_of
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.writer import join, object_pieces

Frame = tuple[str, str]
"""What stands before and after every value."""
NO_FRAME = ("", "")


def encode_keys(
    forms: RowConverters, texts: Mapping[str, RowColumn], row_count: int, frame: Frame
) -> pa.BinaryArray:
    """Null for tables without a key."""
    names = forms.schema.key
    if not names:
        return pa.nulls(row_count, pa.binary())
    pieces = object_pieces(names, [texts[name] for name in names])
    return join([frame[0], *pieces, frame[1]], row_count, kind=pa.binary())


def key_frame(forms: RowConverters, *, topic: str, has_schemas: bool) -> Frame:
    if not has_schemas:
        return NO_FRAME
    return forms.once(
        "key", lambda: frame_of(text_of(key_schema(forms.schema, forms.forms, topic=topic)))
    )


def frame_of(schema_text: str) -> Frame:
    return f'{{"schema":{schema_text},"payload":', "}"
