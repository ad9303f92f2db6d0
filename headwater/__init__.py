"""Headwater in a program: run a pipeline, use the log, write sources and sinks, open a lake."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.connectors.source import Control, Source, SourceContext
    from headwater.core_log.client import KafkaLog, KafkaSettings
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.core_log.foundation.errors import (
        Diagnostic,
        Fenced,
        HeadwaterError,
        RecordsRejected,
        SinkRejected,
        SinkUnavailable,
        SourceRejected,
        SourceUnavailable,
    )
    from headwater.core_log.foundation.settings import (
        BrokerSettings,
        DurationMs,
        SizeBytes,
        TopicSettings,
        YamlSettings,
    )
    from headwater.core_log.model.changes import (
        ChangeBatch,
        Operation,
        Positions,
        TableChanges,
        source_times,
    )
    from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
    from headwater.core_log.model.table_schema import Column, TableId, TableSchema
    from headwater.core_log.records.batch_header import Batch
    from headwater.core_log.records.record_codec import (
        PlainRecord,
        decode_batch,
        encode_batch,
        iterate_batches,
    )
    from headwater.pipelines.running.program import run_pipeline
    from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Sink, SinkContext, Slice
    from headwater.sinks.spark.sink_state import tables_at

PUBLIC = {
    "headwater.connectors.source": ("Control", "Source", "SourceContext"),
    "headwater.core_log.client": ("KafkaLog", "KafkaSettings"),
    "headwater.core_log.embedded": ("EmbeddedLog",),
    "headwater.core_log.foundation.errors": (
        "Diagnostic",
        "Fenced",
        "HeadwaterError",
        "RecordsRejected",
        "SinkRejected",
        "SinkUnavailable",
        "SourceRejected",
        "SourceUnavailable",
    ),
    "headwater.core_log.foundation.settings": (
        "BrokerSettings",
        "DurationMs",
        "SizeBytes",
        "TopicSettings",
        "YamlSettings",
    ),
    "headwater.core_log.model.changes": (
        "ChangeBatch",
        "Operation",
        "Positions",
        "TableChanges",
        "source_times",
    ),
    "headwater.core_log.model.log": ("FetchLimit", "Isolation", "Log", "TopicPartition"),
    "headwater.core_log.model.table_schema": ("Column", "TableId", "TableSchema"),
    "headwater.core_log.records.batch_header": ("Batch",),
    "headwater.core_log.records.record_codec": (
        "PlainRecord",
        "decode_batch",
        "encode_batch",
        "iterate_batches",
    ),
    "headwater.pipelines.running.program": ("run_pipeline",),
    "headwater.sinks.sink": ("Sink", "SinkContext", "Slice", "AppliedOffset", "AppliedOffsets"),
    "headwater.sinks.spark.sink_state": ("tables_at",),
}
"""Module to the names that it offers here. Each is imported when it is first used: the process of
the broker never loads pyarrow, and few programs need all of this."""

HOMES = {name: module for module, names in PUBLIC.items() for name in names}

__all__ = [
    "AppliedOffset",
    "AppliedOffsets",
    "Batch",
    "BrokerSettings",
    "ChangeBatch",
    "Column",
    "Control",
    "Diagnostic",
    "DurationMs",
    "EmbeddedLog",
    "Fenced",
    "FetchLimit",
    "HeadwaterError",
    "Isolation",
    "KafkaLog",
    "KafkaSettings",
    "Log",
    "Operation",
    "PlainRecord",
    "Positions",
    "RecordsRejected",
    "Sink",
    "SinkContext",
    "SinkRejected",
    "SinkUnavailable",
    "SizeBytes",
    "Slice",
    "Source",
    "SourceContext",
    "SourceRejected",
    "SourceUnavailable",
    "TableChanges",
    "TableId",
    "TableSchema",
    "TopicPartition",
    "TopicSettings",
    "YamlSettings",
    "decode_batch",
    "encode_batch",
    "iterate_batches",
    "run_pipeline",
    "source_times",
    "tables_at",
]


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
