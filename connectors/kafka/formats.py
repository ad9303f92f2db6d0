"""Which reader understands a topic's records."""

from connectors.kafka.debezium_events import DebeziumReader
from connectors.kafka.decoded_rows import TopicReader
from connectors.kafka.json_records import JsonReader
from connectors.kafka.raw_records import RawReader
from connectors.kafka.settings import KafkaSourceSettings


def reader_of(settings: KafkaSourceSettings, topic: str, learnt: str) -> TopicReader:
    match settings.format:
        case "raw":
            return RawReader(topic)
        case "json":
            return JsonReader(topic, settings.key, learnt)
    return DebeziumReader(settings, topic, learnt)
