"""Which topic a table's changes go to, what it is called and how it is kept."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.journal.generations import NONE, Generations

ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
RESERVED = {"dlq", "transaction", "message", "heartbeat"}
"""Last parts of topics that a pipeline uses for other things than tables."""
ROWS_PER_PARTITION, PARTITIONS_MAX = 10_000_000, 8
"""Compaction and whoever folds a partition remember its keys: this many are some hundred MB."""


def partitions_for(rows: int | None) -> int:
    """Of the topic of a table that has about so many rows when the topic is made."""
    return min(max(1, -(-(rows or 0) // ROWS_PER_PARTITION)), PARTITIONS_MAX)


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a pipeline's `log:` says of its topics."""

    pipeline: str
    template: str
    """With `{pipeline}`, `{schema}` and `{table}`."""
    partitions: int | None
    """None leaves it to how many rows a table has when its topic is made."""
    config: Mapping[str, str]
    """By Kafka's names, such as `cleanup.policy`."""
    generations: Generations = NONE

    def name_of(self, table: TableId) -> str:
        """The topic that the table's changes go to now."""
        return self.generations.present(self.first_name_of(table))

    def first_name_of(self, table: TableId) -> str:
        """A table without a namespace leaves the part and its dot out. Characters that no topic
        may have become underscores, as Debezium does it."""
        template = self.template if table.namespace else self.template.replace("{schema}.", "")
        name = (
            template.replace("{pipeline}", self.pipeline)
            .replace("{schema}", table.namespace)
            .replace("{table}", table.name)
        )
        name = ILLEGAL.sub("_", name)
        if name.rpartition(".")[2] in RESERVED:
            raise ConfigError(
                "a table's topic would have a name that is kept for other uses",
                hint="give it another topic by log.topic, such as tables.{schema}.{table}",
                table=str(table),
                topic=name,
            )
        return name

    def topic_of(self, schema: TableSchema, *, partitions: int = 1) -> TopicSettings:
        """Without a key there is nothing to compact by: such a topic keeps every change.
        `partitions`: how many it has, or gets, where the file does not say."""
        config = dict(self.config)
        if not schema.key and "compact" in config.get("cleanup.policy", ""):
            config |= {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        return TopicSettings(
            name=self.name_of(schema.table),
            partitions=self.partitions or partitions,
            keeps_partitions=self.partitions is None,
            config=config,
        )
