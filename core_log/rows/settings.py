"""Wire settings of rows, which are part of a topic's identity."""

from typing import Literal

from headwater.core_log.foundation.settings import Settings

ValueFormat = Literal["debezium-json", "flat-json", "debezium-avro", "flat-avro"]


class WireSettings(Settings):
    """Settings that are stored beside every schema in `__headwater_schemas`, so that a reader needs
    nothing else."""

    value: ValueFormat = "debezium-json"
    """The value format that wrote the records."""
    has_schemas: bool = False
    """JSON only: every key and value contains its Kafka Connect schema."""
    decimal: Literal["string", "precise", "double"] = "string"
    """Debezium's decimal.handling.mode."""
    time: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds",
        "nanoseconds",
    ] = "adaptive"  # fmt: skip
    """Debezium's time.precision.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Debezium's binary.handling.mode."""
    registry: str = ""
    """Address of the schema registry for Avro values."""
