"""The topic of a table: its name, configuration and partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.journal.generations import NONE, Generations

ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
RESERVED = {"dlq", "transaction", "message", "heartbeat"}
"""Last parts of topic names that a pipeline uses for other purposes than tables."""
ROWS_PER_PARTITION, PARTITIONS_MAX = 10_000_000, 8
"""Compaction and readers that fold a partition keep its keys in memory: this many are some hundred
MB."""


def partitions_for(rows: int | None) -> int:
    """Returns the partitions of the topic of a table with about this many rows at its creation."""
    return min(max(1, -(-(rows or 0) // ROWS_PER_PARTITION)), PARTITIONS_MAX)


@dataclass(frozen=True, slots=True)
class TopicRules:
    """A pipeline's `log:` rules for its topics."""

    pipeline: str
    template: str
    """With `{pipeline}`, `{schema}` and `{table}`."""
    partitions: int | None
    """None: chosen by the table's row count when its topic is created."""
    config: Mapping[str, str]
    """By Kafka's names, such as `cleanup.policy`."""
    generations: Generations = NONE

    def name_of(self, table: TableId) -> str:
        """Returns the present topic of the table."""
        return self.generations.present(self.first_name_of(table))

    def first_name_of(self, table: TableId) -> str:
        """Returns the first topic's name. A table without a namespace leaves the part and its dot
        out. Characters that a topic name cannot have become underscores, as in Debezium."""
        template = self.template if table.namespace else self.template.replace("{schema}.", "")
        name = (
            template.replace("{pipeline}", self.pipeline)
            .replace("{schema}", table.namespace)
            .replace("{table}", table.name)
        )
        name = ILLEGAL.sub("_", name)
        if name.rpartition(".")[2] in RESERVED:
            raise ConfigError(
                "the table's topic name is reserved",
                hint="choose another topic by log.topic, such as tables.{schema}.{table}",
                table=str(table),
                topic=name,
            )
        return name

    def check_owner(self, table: TableId, owner: TableId | None) -> None:
        """Raises ConfigError if the topic is another table's: rows of both would have the same
        keys."""
        if owner not in (None, table):
            raise ConfigError(
                "two tables have the same topic name, because topics allow fewer characters",
                hint="capture only one of them, or change the template log.topic; if the first one"
                f" is gone, headwater drop {self.pipeline}/{owner}",
                topic=self.name_of(table),
                tables=[str(owner), str(table)],
            )

    def topic_of(self, schema: TableSchema, *, partitions: int = 1) -> TopicSettings:
        """Returns the topic. Without a key it keeps every change, because compaction needs a key.
        `partitions`: their number, if the file does not set it."""
        config = dict(self.config)
        if not schema.key and "compact" in config.get("cleanup.policy", ""):
            config |= {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        return TopicSettings(
            name=self.name_of(schema.table),
            partitions=self.partitions or partitions,
            keeps_partitions=self.partitions is None,
            config=config,
        )
