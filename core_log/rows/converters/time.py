"""How days, times and moments look on the wire, in each of Debezium's modes."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.row_writer import ValueEncoding
from headwater.core_log.rows.connect_schema import Converter
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.text import datetime
from headwater.core_log.rows.text.datetime import iso_text_to_times, times_to_iso_text


def temporal_form(
    kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    if pa.types.is_timestamp(kind):
        return _zoned_form(kind, parameters) if kind.tz is not None else _timestamp_form(kind, wire)
    if pa.types.is_date32(kind):
        return _date_form(wire)
    if pa.types.is_time(kind):
        return _time_form(kind, wire)
    raise DecodeError("a column of this type has no place in the log", type=str(kind))


def _zoned_form(kind: pa.DataType, parameters: Mapping[str, str]) -> Converter:
    digits = int(parameters.get(datetime.DIGITS, datetime.UNIT_DIGITS[kind.unit]))
    return Converter(
        pa.string(),
        "io.debezium.time.ZonedTimestamp",
        to_wire=lambda column: datetime.moments_to_text(column, digits=digits),
        from_wire=lambda column: datetime.text_to_moments(column, kind),
        direct=ValueEncoding.MOMENT if digits == datetime.UNIT_DIGITS[kind.unit] else None,
    )


def _timestamp_form(kind: pa.DataType, wire: WireSettings) -> Converter:
    if wire.time == "isostring":
        return Converter(
            pa.string(),
            "io.debezium.time.IsoTimestamp",
            to_wire=datetime.moments_to_bare_text,
            from_wire=lambda column: datetime.text_to_moments(column, kind),
        )
    if wire.time == "nanoseconds" and kind.unit != "ns":
        return Converter(
            pa.int64(),
            "io.debezium.time.NanoTimestamp",
            to_wire=datetime.moments_to_nanos,
            from_wire=lambda column: datetime.nanos_to_moments(column, kind),
        )
    unit = _unit_on_wire(kind.unit, wire)
    name = {"ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}[unit]
    return Converter(
        pa.int64(),
        _time_name(name, wire),
        to_wire=lambda column: datetime.rescale(column, unit=kind.unit, to=unit, kind=pa.int64()),
        from_wire=lambda column: datetime.rescale(
            column, unit=unit, to=kind.unit, kind=pa.int64()
        ).view(kind),
    )


def _unit_on_wire(unit: str, wire: WireSettings) -> str:
    match wire.time:
        case "connect":
            return "ms"
        case "microseconds":
            return "us"
        case "nanoseconds":
            return "ns"
        case _:
            return "ms" if unit == "s" else unit


def _time_name(name: str, wire: WireSettings) -> str:
    package = "org.apache.kafka.connect.data" if wire.time == "connect" else "io.debezium.time"
    return f"{package}.{name}"


def _date_form(wire: WireSettings) -> Converter:
    if wire.time == "isostring":
        return Converter(
            pa.string(),
            "io.debezium.time.IsoDate",
            to_wire=datetime.dates_to_text,
            from_wire=datetime.text_to_dates,
        )
    return Converter(
        pa.int32(),
        _time_name("Date", wire),
        to_wire=lambda column: column.view(pa.int32()),
        from_wire=lambda column: column.view(pa.date32()),
    )


def _time_form(kind: pa.DataType, wire: WireSettings) -> Converter:
    if wire.time == "isostring":
        return Converter(
            pa.string(),
            "io.debezium.time.IsoTime",
            to_wire=times_to_iso_text,
            from_wire=lambda column: iso_text_to_times(column, kind),
        )
    unit = "us" if wire.time == "adaptive_time_microseconds" else _unit_on_wire(kind.unit, wire)
    wire_type = pa.int32() if unit == "ms" else pa.int64()
    stored = pa.int32() if kind.unit in ("s", "ms") else pa.int64()
    name = {"ms": "Time", "us": "MicroTime", "ns": "NanoTime"}[unit]
    return Converter(
        wire_type,
        _time_name(name, wire),
        to_wire=lambda column: datetime.rescale(
            column.view(stored), unit=kind.unit, to=unit, kind=wire_type
        ),
        from_wire=lambda column: _check_time(
            datetime.rescale(column, unit=unit, to=kind.unit, kind=stored).view(kind)
        ),
    )


def _check_time(column: pa.Array) -> pa.Array:
    """PostgreSQL's 24:00:00 is a time of day; what lies beyond is none."""
    numbers = column.view(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
    bound = 86_400 * datetime.PER_SECOND[column.type.unit]
    is_inside = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, bound))
    if not is_inside.fill_null(True).to_numpy(zero_copy_only=False).all():
        raise ValueError("the value is not a time of day")
    return column
