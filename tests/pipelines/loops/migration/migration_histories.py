"""Stories of a topic that gets its next generation, in which every step is crashed once."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st

from headwater.core_log.rows.settings import ValueFormat
from headwater.pipelines.journal.schemas import topics_of
from tests.memory_log import Crash, Fuse
from tests.pipelines.loops.migration.migrations import TABLE, MigratingWorld, flattened
from tests.pipelines.pipeline_in_memory import PIPELINE, Transaction

CHANGE = st.tuples(
    st.just(TABLE), st.sampled_from("cuuudt"), st.integers(1, 4), st.text("ab", max_size=2)
)
SCRIPTS = st.lists(
    st.lists(st.lists(CHANGE, min_size=1, max_size=3), min_size=1, max_size=2), max_size=6
)
FORMATS: list[ValueFormat] = ["debezium-json", "flat-json"]


@dataclass(frozen=True)
class History:
    script: list[Transaction]
    switch_at: int
    """How many transactions come before the next generation."""
    partitions: int
    to: int
    value: ValueFormat
    crash: tuple[int, bool]
    """At which operation of each step, and whether after its effect."""
    sink_first: bool
    sink_between: bool

    @property
    def has_topic(self) -> bool:
        return bool(flattened(self.script[: self.switch_at]))

    async def live(self, world: MigratingWorld) -> None:
        """Every step is crashed once, at the same count of its operations, and then done."""

        async def twice(step: str) -> None:
            at, after = self.crash
            for fuse in (Fuse(at, after=after), Fuse()):
                with suppress(Crash):
                    if step == "read":
                        await world.read(self.switch_at, fuse)
                    elif step == "rest":
                        await world.read(len(world.script), fuse)
                    elif step == "migrate":
                        await world.migrate(self.to, fuse, value=self.value)
                    else:
                        await world.write(fuse)

        await twice("read")
        if not await topics_of(world.log, PIPELINE):
            return
        if self.sink_first:
            await twice("write")
        await twice("migrate")
        if self.sink_between:
            await twice("write")
        await twice("rest")
        await twice("write")


def numbered(script: Sequence[Transaction]) -> list[Transaction]:
    """Every value is another one, so that changes can be told apart."""
    count = iter(range(1_000))
    return [
        [[(table, letter, key, f"{value}{next(count)}") for table, letter, key, value in batch]
         for batch in transaction]
        for transaction in script
    ]  # fmt: skip


HISTORIES = st.builds(
    History,
    script=SCRIPTS.map(numbered),
    switch_at=st.integers(1, 5),
    partitions=st.sampled_from([1, 1, 2, 3]),
    to=st.integers(1, 3),
    value=st.sampled_from(FORMATS),
    crash=st.tuples(st.integers(1, 40), st.booleans()),
    sink_first=st.booleans(),
    sink_between=st.booleans(),
)
