"""The wire form of decimals in each of Debezium's modes."""

from collections.abc import Mapping

import pyarrow as pa

from headwater.core_log.records.row_parts import ValueEncoding
from headwater.core_log.rows.converters.converter import DECIMAL, Converter
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.text import decimal

VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def decimal_form(kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings) -> Converter:
    """Returns the converter. `parameters` are those of the schema if the type alone would give
    others."""
    match wire.decimal:
        case "string":
            return Converter(
                pa.string(),
                to_wire=decimal.decimal_to_text,
                from_wire=lambda column: decimal.text_to_decimal(column, kind),
                direct=ValueEncoding.DECIMAL,
            )
        case "double":
            return Converter(
                pa.float64(),
                # Converted through text: Arrow's own cast is sometimes off by one bit.
                to_wire=lambda column: decimal.decimal_to_text(column).cast(pa.float64()),
                from_wire=lambda column: column.cast(kind),
            )
        case "precise":
            declared = {
                "scale": str(kind.scale),
                "connect.decimal.precision": str(kind.precision),
            }
            return Converter(
                pa.binary(),
                DECIMAL,
                parameters or declared,
                decimal.decimal_to_bytes,
                lambda column: decimal.bytes_to_decimal(column, kind),
            )


def long_decimal_form(
    semantic: str, parameters: Mapping[str, str], wire: WireSettings
) -> Converter:
    """Returns the converter of numbers that no Arrow type holds. Internally they are text in every
    mode."""
    match wire.decimal:
        case "string":
            return Converter(
                pa.string(), to_wire=decimal.to_java_words, from_wire=decimal.from_java_words
            )
        case "double":
            return Converter(
                pa.float64(),
                to_wire=lambda column: column.cast(pa.float64()),
                from_wire=decimal.double_to_text,
            )
        case "precise" if semantic == VARIABLE_SCALE:
            return Converter(
                decimal.VARIABLE_SCALE,
                semantic,
                {},
                decimal.text_to_variable_scale,
                decimal.variable_scale_to_text,
                (Converter(pa.int32()), Converter(pa.binary())),
                frozenset(("scale", "value")),
                "Variable scaled decimal",
            )
        case "precise":
            scale = int(parameters.get("scale", "0"))
            return Converter(
                pa.binary(),
                semantic,
                parameters,
                lambda column: decimal.text_to_scaled(column, scale=scale),
                lambda column: decimal.scaled_to_text(column, scale=scale),
            )
