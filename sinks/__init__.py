"""Sinks: each applies slices of the log to one kind of target."""

SINKS = {
    "console": "sinks.console.sink:ConsoleSink",
    "files": "sinks.files.sink:FilesSink",
    "kafka": "sinks.kafka.sink:KafkaSink",
    "spark": "sinks.spark.sink:SparkSink",
    "sql": "sinks.sql.sink:SqlSink",
}
"""YAML `type:` to the class behind it, imported when used. Other packages add theirs by entry
points of the group `headwater.sinks`."""

SETTINGS = {
    "console": "sinks.console.settings:ConsoleSettings",
    "files": "sinks.files.settings:FilesSinkSettings",
    "kafka": "sinks.kafka.settings:KafkaSinkSettings",
    "spark": "sinks.spark.settings:SparkSettings",
    "sql": "sinks.sql.settings:SqlSettings",
}
"""The same to what may be set: whoever only reads pipeline files needs no more than that."""
