"""Which codec reads and writes a value format."""

from core_log.rows.codec import RowCodec
from core_log.rows.settings import WireSettings


def codec_for(wire: WireSettings, *, topic: str) -> RowCodec:
    """`topic` names the schemas inside the records and, for Avro, the registry's subjects."""
    match wire.value:
        case "debezium-json":
            from core_log.rows.json.debezium_codec import DebeziumJson

            return DebeziumJson(wire, topic=topic)
        case "flat-json":
            from core_log.rows.json.flat_codec import FlatJson

            return FlatJson(wire, topic=topic)
        case "debezium-avro":
            from core_log.rows.avro.codecs import DebeziumAvro

            return DebeziumAvro(wire, topic=topic)
        case "flat-avro":
            from core_log.rows.avro.codecs import FlatAvro

            return FlatAvro(wire, topic=topic)
