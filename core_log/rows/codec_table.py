"""Which codec reads and writes a value format."""

from headwater.core_log.rows.codec import RowCodec
from headwater.core_log.rows.settings import WireSettings


def codec_for(wire: WireSettings, *, topic: str) -> RowCodec:
    """`topic` names the schemas inside the records and, for Avro, the registry's subjects."""
    match wire.value:
        case "debezium-json":
            from headwater.core_log.rows.json.debezium_codec import DebeziumJson

            return DebeziumJson(wire, topic=topic)
        case "flat-json":
            from headwater.core_log.rows.json.flat_codec import FlatJson

            return FlatJson(wire, topic=topic)
        case "debezium-avro":
            from headwater.core_log.rows.avro.codecs import DebeziumAvro

            return DebeziumAvro(wire, topic=topic)
        case "flat-avro":
            from headwater.core_log.rows.avro.codecs import FlatAvro

            return FlatAvro(wire, topic=topic)
