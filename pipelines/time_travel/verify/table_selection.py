"""The tables of the targets that a command means, and the topics that each is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, failures_named
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.inventory import schemas_of
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.transforms.after_log import RowTransforms


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table of the targets."""

    target: TableId
    schema: TableSchema
    """As the targets have it now."""
    sources: tuple[StoredSchema, ...]
    failure: HeadwaterError | None = None
    """Why the rules of the file cannot be applied to it; then it is as the source has it."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(stored.topic for stored in self.sources)

    async def partitions(self, log: Log) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic in self.topics
            for partition in range(await log.partition_count(topic))
        ]


async def subjects_of(loaded: LoadedPipeline, log: Log) -> Sequence[ComparedTable]:
    """All that the log holds changes of."""
    after_log = RowTransforms(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    found: dict[TableId, list[tuple[StoredSchema, TableSchema]]] = {}
    failed: list[ComparedTable] = []
    for stored in (await schemas_of(log, loaded.name)).values():
        try:
            with failures_named(table=str(stored.schema.table)):
                schema = after_log.schema(stored.schema)
        except HeadwaterError as error:
            failed.append(ComparedTable(stored.schema.table, stored.schema, (stored,), error))
            continue
        found.setdefault(schema.table, []).append((stored, schema))
    subjects = [
        ComparedTable(
            target,
            max(parts, key=lambda part: part[0].recorded_ms)[1],
            tuple(stored for stored, _ in parts),
        )
        for target, parts in found.items()
    ]
    return sorted([*subjects, *failed], key=lambda each: each.target)


def subject_of(subjects: Sequence[ComparedTable], table: str, *, pipeline: str) -> ComparedTable:
    """`table` as the target calls it, or as the source does."""
    meant = [subject for subject in subjects if table in _names(subject)]
    if len(meant) == 1:
        if meant[0].failure is not None:
            raise meant[0].failure
        return meant[0]
    known = sorted(str(subject.target) for subject in meant or subjects)
    raise ConfigError(
        "several tables are called so" if meant else "the log knows no such table",
        hint="say which: " + ", ".join(known),
        pipeline=pipeline,
        table=table,
    )


def _names(subject: ComparedTable) -> set[str]:
    tables = [subject.target, *(stored.schema.table for stored in subject.sources)]
    return {name for table in tables for name in (str(table), table.name)}
