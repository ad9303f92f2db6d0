"""A topic has records of one key, whatever a source says."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest

from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.pipelines.journal.internal_topics import internal_topics
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import ScriptedSource, World, changes_of


class OtherKeySource(ScriptedSource):
    """A source whose table gets another key, of which it says nothing."""

    def __init__(self, keys: Sequence[tuple[str, ...]]) -> None:
        super().__init__([], Fuse())
        self.keys = keys

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for number, key in enumerate(self.keys, 1):
            changes = changes_of("orders", [("orders", "c", number, "x")], commit=number)
            changes = replace(changes, schema=replace(changes.schema, key=key))
            yield ChangeBatch((changes,), {"stream": str(number)})


@pytest.mark.parametrize("keys", [[("id",), ("id", "value")], [("id",), ()], [(), ("id",)]])
async def test_records_of_another_key_do_not_enter_a_topic(keys: list[tuple[str, ...]]) -> None:
    world = World([])
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)

    with pytest.raises(SourceRejected, match="another key than those of their topic") as refused:
        await world.ingest_from(OtherKeySource(keys))

    at_source, after_edit = refused.value.hint.split(";")
    assert "next try" in at_source and "run --migrate" in after_edit
    await world.deliver(Fuse())
    assert not world.target.tables.get("orders", {}).keys() - {1}
