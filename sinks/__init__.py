"""Sinks: each applies slices of the log to one kind of target."""

SINKS = {
    "console": "headwater.sinks.console.sink:ConsoleSink",
    "files": "headwater.sinks.files.sink:FilesSink",
    "kafka": "headwater.sinks.kafka.sink:KafkaSink",
    "spark": "headwater.sinks.spark.sink:SparkSink",
    "sql": "headwater.sinks.sql.sink:SqlSink",
}
"""YAML `type:` to the sink class, imported when used. Other packages add theirs by entry points of
the group `headwater.sinks`."""

SETTINGS = {
    "console": "headwater.sinks.console.settings:ConsoleSettings",
    "files": "headwater.sinks.files.settings:FilesSinkSettings",
    "kafka": "headwater.sinks.kafka.settings:KafkaSinkSettings",
    "spark": "headwater.sinks.spark.settings:SparkSettings",
    "sql": "headwater.sinks.sql.settings:SqlSettings",
}
"""YAML `type:` to the settings class, which is all that a reader of pipeline files needs."""
