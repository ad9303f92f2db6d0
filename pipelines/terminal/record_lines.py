"""A record as one line for people and as an object for programs."""

import base64

from headwater.core_log.records.record_codec import PlainRecord
from headwater.pipelines.terminal.output import printable
from headwater.pipelines.terminal.times import time_text


def record_data(record: PlainRecord) -> dict[str, object]:
    """Text where the bytes are UTF-8; else `key` or `value` is null and `..._base64` has them."""
    data: dict[str, object] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    data |= text_or_base64("key", record.key) | text_or_base64("value", record.value)
    if record.headers:
        data["headers"] = [header_data(*header) for header in record.headers]
    return data


def header_data(name: str, value: bytes | None) -> dict[str, object]:
    return {"name": name, **text_or_base64("value", value)}


def text_or_base64(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(content).decode()}


def record_line(partition: int, record: PlainRecord) -> str:
    """As it is in the log; a missing key or value is `-`."""
    return line_of(partition, record, as_text(record.key), as_text(record.value))


def line_of(partition: int, record: PlainRecord, key: str, value: str) -> str:
    """`partition:offset time key value`, tabs between."""
    return "\t".join((f"{partition}:{record.offset}", time_text(record.timestamp_ms), key, value))


def as_text(content: bytes | None) -> str:
    """Never more than a line, and nothing that a terminal would obey."""
    return "-" if content is None else printable(content.decode(errors="backslashreplace"))
