"""Which reader understands a topic's records."""

from headwater.connectors.kafka.debezium_events import DebeziumReader
from headwater.connectors.kafka.decoded_rows import TopicReader
from headwater.connectors.kafka.json_records import JsonReader
from headwater.connectors.kafka.raw_records import RawReader
from headwater.connectors.kafka.settings import KafkaSourceSettings


def reader_of(settings: KafkaSourceSettings, topic: str, learnt: str) -> TopicReader:
    match settings.format:
        case "raw":
            return RawReader(topic)
        case "json":
            return JsonReader(topic, settings.key, learnt)
    return DebeziumReader(settings, topic, learnt)
