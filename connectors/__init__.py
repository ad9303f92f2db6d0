"""Sources: each reads one kind of external system and emits its changes as batches."""

SOURCES = {
    "files": "connectors.files.source:FilesSource",
    "generator": "connectors.generator.source:GeneratorSource",
    "kafka": "connectors.kafka.source:KafkaSource",
    "postgres": "connectors.postgres.source:PostgresSource",
    "sql": "connectors.sql.source:SqlSource",
}
"""YAML `type:` to the class behind it, imported when used. Other packages add theirs by entry
points of the group `headwater.sources`."""

SETTINGS = {
    "files": "connectors.files.settings:FilesSettings",
    "generator": "connectors.generator.settings:GeneratorSettings",
    "kafka": "connectors.kafka.settings:KafkaSourceSettings",
    "postgres": "connectors.postgres.settings:PostgresSettings",
    "sql": "connectors.sql.settings:SqlSourceSettings",
}
"""The same to what may be set: whoever only reads pipeline files needs no more than that."""
