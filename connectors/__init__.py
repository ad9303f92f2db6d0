"""Sources: each reads one kind of external system and emits its changes as batches."""

SOURCES = {
    "files": "headwater.connectors.files.source:FilesSource",
    "generator": "headwater.connectors.generator.source:GeneratorSource",
    "kafka": "headwater.connectors.kafka.source:KafkaSource",
    "mariadb": "headwater.connectors.mysql.source:MysqlSource",
    "mysql": "headwater.connectors.mysql.source:MysqlSource",
    "postgres": "headwater.connectors.postgres.source:PostgresSource",
    "sql": "headwater.connectors.sql.source:SqlSource",
}
"""YAML `type:` to the source's class, imported when used. Other packages add theirs by entry points
of the group `headwater.sources`."""

SETTINGS = {
    "files": "headwater.connectors.files.settings:FilesSettings",
    "generator": "headwater.connectors.generator.settings:GeneratorSettings",
    "kafka": "headwater.connectors.kafka.settings:KafkaSourceSettings",
    "mariadb": "headwater.connectors.mysql.settings:MysqlSettings",
    "mysql": "headwater.connectors.mysql.settings:MysqlSettings",
    "postgres": "headwater.connectors.postgres.settings:PostgresSettings",
    "sql": "headwater.connectors.sql.settings:SqlSourceSettings",
}
"""YAML `type:` to the source's settings: a reader of pipeline files needs no more."""
