"""How decimals look on the wire, in each of Debezium's modes."""

from collections.abc import Mapping

import pyarrow as pa

from core_log.joining_pieces import Kind
from core_log.rows import decimals
from core_log.rows.settings import WireSettings
from core_log.rows.wire_form import DECIMAL, WireForm

VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


def decimal_form(kind: pa.DataType, parameters: Mapping[str, str], wire: WireSettings) -> WireForm:
    """`parameters` are what the schema says where the type alone would say something else."""
    match wire.decimal:
        case "string":
            return WireForm(
                pa.string(),
                to_wire=decimals.decimal_to_text,
                from_wire=lambda column: decimals.text_to_decimal(column, kind),
                direct=Kind.DECIMAL,
            )
        case "double":
            return WireForm(
                pa.float64(),
                # By way of text: Arrow's own cast is off by a bit now and then.
                to_wire=lambda column: decimals.decimal_to_text(column).cast(pa.float64()),
                from_wire=lambda column: column.cast(kind),
            )
        case "precise":
            declared = {
                "scale": str(kind.scale),
                "connect.decimal.precision": str(kind.precision),
            }
            return WireForm(
                pa.binary(),
                DECIMAL,
                parameters or declared,
                decimals.decimal_to_bytes,
                lambda column: decimals.bytes_to_decimal(column, kind),
            )


def long_decimal_form(semantic: str, parameters: Mapping[str, str], wire: WireSettings) -> WireForm:
    """Numbers that no Arrow type holds travel as text inside of us, whatever is on the wire."""
    match wire.decimal:
        case "string":
            return WireForm(
                pa.string(), to_wire=decimals.to_java_words, from_wire=decimals.from_java_words
            )
        case "double":
            return WireForm(
                pa.float64(),
                to_wire=lambda column: column.cast(pa.float64()),
                from_wire=decimals.double_to_text,
            )
        case "precise" if semantic == VARIABLE_SCALE:
            return WireForm(
                decimals.VARIABLE_SCALE,
                semantic,
                {},
                decimals.text_to_variable_scale,
                decimals.variable_scale_to_text,
                (WireForm(pa.int32()), WireForm(pa.binary())),
                frozenset(("scale", "value")),
                "Variable scaled decimal",
            )
        case "precise":
            scale = int(parameters.get("scale", "0"))
            return WireForm(
                pa.binary(),
                semantic,
                parameters,
                lambda column: decimals.text_to_scaled(column, scale=scale),
                lambda column: decimals.scaled_to_text(column, scale=scale),
            )
