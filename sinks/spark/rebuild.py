"""A second copy of a table in a directory of the live one, and the commit that puts it in place."""

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import SinkRejected, SinkUnavailable
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import CarryOver, RebuildRecipe
from headwater.sinks.spark.carry_over import carried_over
from headwater.sinks.spark.lake import Lake, LakeShadow
from headwater.sinks.spark.lake_table_writer import ATTEMPTS_MAX, farthest
from headwater.sinks.spark.sink_state import SinkState, next_entry
from headwater.sinks.spark.table import LakeTableState, Overtaken, TableCommit, TableCreation

if TYPE_CHECKING:
    from headwater.sinks.sink import AppliedOffsets


def shadow_of(lake: Lake, recipe: RebuildRecipe) -> LakeShadow:
    """The copy that is in the making already, if it is made by the same recipe, or a new one."""
    shadow = LakeShadow(recipe.table, _live(lake, recipe.table).generation + 1, recipe.newest)
    copy = Lake(lake.settings, lake.context, shadow)
    ledger = copy.ledger()
    if ledger.head().recipe != recipe.digest:
        kept = copy.table(recipe.table)
        if kept.load() is not None:
            kept.lake.drop()
        ledger.forget()
        if not ledger.add(replace(next_entry(SinkState(), writer=""), recipe=recipe.digest)):
            raise SinkUnavailable("somebody else begins a copy now", table=str(recipe.table))
    return shadow


def swap(lake: Lake, table: TableId, carry_over: CarryOver | None = None) -> str:
    """One commit of the live table takes its files out and the copy's in. The old version can be
    read until its files are removed."""
    kept = lake.table(table)
    for _ in range(ATTEMPTS_MAX):
        live = _live(lake, table)
        shadow = LakeShadow(table, live.generation + 1)
        copy = Lake(lake.settings, lake.context, shadow)
        state = copy.table(table).load()
        if state is None or state.owner is None:
            raise SinkRejected(
                "there is no copy to put in the table's place",
                table=str(table),
                hint="headwater rebuild PIPELINE/TABLE makes one",
            )
        owner = state.owner
        if carry_over is not None:
            state = carried_over(kept, live, copy.table(table), state, carry_over)
        becomes = TableCreation(
            id=live.id,
            schema=state.schema,
            mode=state.mode,
            key=state.key,
            owner=owner,
            partition_by=state.partition_by,
            generation=shadow.generation,
            columns=state.columns,
        )
        change = TableCommit(
            added=[replace(each, path=f"{shadow.directory}/{each.path}") for each in state.files],
            removed=live.files,
            stands=_stands(copy, state),
            feeds=state.feeds,
            committed_ms=lake.context.clock.now_ms(),
            becomes=becomes,
            operation="RESTORE",
        )
        _take_over(lake, table, live, state)
        try:
            kept.lake.commit(live, change)
        except Overtaken:
            continue
        _forget(copy, table)
        return f"version {live.version} of {kept.place.root}"
    raise SinkUnavailable("others keep committing to the table", table=str(table))


def _live(lake: Lake, table: TableId) -> LakeTableState:
    live = lake.table(table).load()
    if live is None:
        raise SinkRejected("there is no table to make a copy of", table=str(table))
    return live


def _stands(copy: Lake, state: LakeTableState) -> "AppliedOffsets":
    """The copy's own, and what it knows beyond them of stretches without rows."""
    passed = copy.ledger().head().passed
    return {part: farthest(part, state.stands, passed) or at for part, at in state.stands.items()}


def _take_over(lake: Lake, table: TableId, live: LakeTableState, copy: LakeTableState) -> None:
    """What is known beyond the live table's own stands says nothing of the copy's rows, which may
    have come from another topic. Before the swap, since without it only a stretch without rows is
    read again."""
    ledger, topics = lake.ledger(), live.feeds.keys() | copy.feeds.keys()
    for _ in range(ATTEMPTS_MAX):
        head = ledger.head()
        passed = {part: each for part, each in head.passed.items() if part.topic not in topics}
        feeds = {**head.feeds, **dict.fromkeys(copy.feeds, (table, live.id))}
        if (passed, feeds) == (head.passed, head.feeds):
            return
        if ledger.add(replace(next_entry(head, writer=""), passed=passed, feeds=feeds)):
            return
    raise SinkUnavailable("others keep writing beside the tables", pipeline=lake.context.pipeline)


def _forget(copy: Lake, table: TableId) -> None:
    """The copy is no table of its own any more; its files stay where they are."""
    copy.table(table).lake.forget()
    copy.ledger().forget()
