"""How decimals look on the wire, in each of Debezium's modes."""

from collections.abc import Mapping

import pyarrow as pa

from headwater.core_log.records.row_parts import ValueEncoding
from headwater.core_log.rows.converters.converter import DECIMAL, Converter
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.text import decimal

VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def decimal_form(kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings) -> Converter:
    """`parameters` are what the schema says where the type alone would say something else."""
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
                # By way of text: Arrow's own cast is off by a bit now and then.
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
    """Numbers that no Arrow type holds travel as text inside of us, whatever is on the wire."""
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
