"""Selects target tables for a command, with the topics of each."""

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
    """The target's present schema."""
    sources: tuple[StoredSchema, ...]
    failure: HeadwaterError | None = None
    """Why the file's rules cannot be applied; the table is then as at the source."""

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
    """Returns all tables with changes in the log."""
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
    """Finds `table` by its name at the target, or at the source."""
    meant = [subject for subject in subjects if table in _names(subject)]
    if len(meant) == 1:
        if meant[0].failure is not None:
            raise meant[0].failure
        return meant[0]
    known = sorted(str(subject.target) for subject in meant or subjects)
    raise ConfigError(
        "several tables have this name" if meant else "the log knows no such table",
        hint="say which: " + ", ".join(known),
        pipeline=pipeline,
        table=table,
    )


def _names(subject: ComparedTable) -> set[str]:
    tables = [subject.target, *(stored.schema.table for stored in subject.sources)]
    return {name for table in tables for name in (str(table), table.name)}
