"""What is looked at once before a source runs: whether its topics can take what the file asks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from core_log.clock import Clock
from core_log.log import Log
from pipelines.journal.control import Desired
from pipelines.journal.schemas import topics_of
from pipelines.loops.build import ensure_topics, make_source, run_unit
from pipelines.preview.plan import before_log_of, check_needs_no_migration, differences
from pipelines.reports import Reporter
from pipelines.running.units import SOURCE, RunUnit

if TYPE_CHECKING:
    from pipelines.file.loading import LoadedPipeline


def checked_first() -> RunUnit:
    """`run_unit`, but a source whose changes may not share topics with the records that lie there
    does not begin."""
    checked: set[bytes] = set()

    async def run(
        loaded: "LoadedPipeline",
        unit: str,
        log: Log,
        *,
        desired: Callable[[], Desired],
        clock: Clock,
        report: Reporter,
        until_end: bool = False,
    ) -> None:
        if unit == SOURCE and (wire := loaded.to_wire()) not in checked:
            await refuse_migration(loaded, log, clock=clock)
            checked.add(wire)
        await run_unit(
            loaded, unit, log, desired=desired, clock=clock, report=report, until_end=until_end
        )

    return run


async def refuse_migration(loaded: "LoadedPipeline", log: Log, *, clock: Clock) -> None:
    """Raises `ConfigError` when the file asks for another key, value format or number of
    partitions than a topic that it would write to has."""
    await ensure_topics(loaded, log)
    stored = await topics_of(log, loaded.name)
    if stored:
        schemas = await make_source(loaded, clock=clock).discover()
        in_log = [before_log_of(loaded).schema(schema) for schema in schemas]
        check_needs_no_migration(await differences(loaded, in_log, stored, log))
