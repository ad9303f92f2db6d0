"""The effects of an ALTER TABLE at the source, in the log and in each target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.connectors.schema_changes import LEFT_OUT
from headwater.connectors.source import NEW_KEY, DdlOutcome, Rehearsing
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError, Cure, HeadwaterError, RebuildNeeded
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.schemas import every_topic_of
from headwater.pipelines.loops.assembly import keeps_rows, make_sink, make_source
from headwater.pipelines.loops.deliver.deliver import OTHER_KEY
from headwater.pipelines.preview.plan import before_log_of
from headwater.pipelines.transforms.after_log import RowTransforms


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    sink: str
    statements: tuple[str, ...]
    """Statements that it would run to create or alter in place."""
    refusal: str = ""
    """Why it would not."""
    is_rebuilt: bool = False
    """Whether a table that keeps no history is then made anew from the log, and swapped in."""


@dataclass(frozen=True, slots=True)
class DdlPlan:
    source: DdlOutcome
    targets: tuple[TargetOutcome, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "table": str(self.source.table),
            "statement": self.source.statement,
            "outcome": self.source.outcome,
            "why": self.source.why,
            "cost": self.source.cost,
            "quarantine": self.source.quarantine,
            "targets": [
                {
                    "sink": each.sink,
                    "statements": [*each.statements],
                    "refusal": each.refusal,
                    "is_rebuilt": each.is_rebuilt,
                }
                for each in self.targets
            ],
        }


async def ddl_plans(
    loaded: LoadedPipeline, log: Log | None, statements: Sequence[str], *, clock: Clock
) -> list[DdlPlan]:
    """`log` is None when there is none yet. Changes nothing."""
    source = make_source(loaded, clock=clock)
    if not isinstance(source, Rehearsing):
        raise ConfigError(
            "a source of this type cannot try DDL",
            hint="leave --ddl out",
            type=loaded.source.kind,
        )
    every = {} if log is None else await every_topic_of(log, loaded.name)
    before_log = before_log_of(loaded, every.values())
    after_log = RowTransforms(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    plans = []
    for each in await source.rehearse(statements):
        targets: tuple[TargetOutcome, ...] = ()
        if each.schema is not None:
            try:
                logged = before_log.schema(each.schema)
            except ConfigError as error:
                plans.append(DdlPlan(_left_out(each, error), ()))
                continue
            schema = after_log.schema(logged)
            targets = tuple(
                [
                    await _of_target(
                        loaded, part, schema, clock=clock, is_new_key=each.outcome == NEW_KEY
                    )
                    for part in loaded.sinks
                ]
            )
        plans.append(DdlPlan(each, targets))
    return plans


def _left_out(said: DdlOutcome, error: ConfigError) -> DdlOutcome:
    """Returns the outcome where a rule that hides columns does not fit the table any more."""
    return replace(said, outcome=LEFT_OUT, why=error.statement, cost="", quarantine="", schema=None)


async def _of_target(
    loaded: LoadedPipeline,
    part: LoadedPart,
    schema: TableSchema,
    *,
    clock: Clock,
    is_new_key: bool,
) -> TargetOutcome:
    if is_new_key and keeps_rows(part, schema):  # every row changes: no sink is asked
        return TargetOutcome(part.name, (), OTHER_KEY, is_rebuilt=True)
    sink = make_sink(loaded, part, clock=clock)
    try:
        return TargetOutcome(part.name, tuple(await sink.plan([schema])))
    except RebuildNeeded as error:
        return TargetOutcome(part.name, (), error.problem, is_rebuilt=True)
    except HeadwaterError as error:
        if error.cure is Cure.TIME:
            raise
        return TargetOutcome(part.name, (), error.problem)
    finally:
        await sink.close()


def ddl_lines(pipeline: str, plans: Sequence[DdlPlan]) -> list[str]:
    lines = [f"PIPELINE {pipeline}   nothing was changed: tried on empty copies"]
    for each in plans:
        outcome = each.source
        lines += ["", outcome.statement, f"  {outcome.table}   {outcome.outcome}: {outcome.why}"]
        if outcome.cost:
            lines.append(f"    {outcome.cost}")
        if outcome.quarantine:
            lines.append(f"    quarantined: {outcome.quarantine}")
        for target in each.targets:
            lines.append(f"    sink {target.sink}: {_target_words(target)}")
            lines += [f"      {line}" for text in target.statements for line in text.splitlines()]
    return lines


def _target_words(target: TargetOutcome) -> str:
    if target.is_rebuilt:
        return f"rebuilt from the log, a history quarantined: {target.refusal}"
    if target.refusal:
        return f"quarantined: {target.refusal}"
    return "in place" if target.statements else "nothing to change"
