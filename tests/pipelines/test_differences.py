"""What an edited file asks of topics that are there already is told apart by what it costs."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.assembly import make_source, topic_rules, wire_of
from headwater.pipelines.preview.plan import (
    Difference,
    before_log_of,
    check_needs_no_migration,
    differences,
)
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog

PIPELINE = """\
pipeline: {{name: shop{salt}}}
source: {{type: generator}}
sink: {{type: console}}
transform: [{{table: "*.customers", mask: {{email: {mask}}}}}]
"""


def loaded_with(directory: Path, mask: str, *, salt: str = "") -> LoadedPipeline:
    path = directory / "pipeline.yaml"
    path.write_text(PIPELINE.format(mask=mask, salt=f", salt: {salt}" if salt else ""))
    [loaded] = load(path, environment={})
    return loaded


async def found_after(before: LoadedPipeline, after: LoadedPipeline) -> list[Difference]:
    clock, log = SimulatedClock(), MemoryLog()
    stored, wanted = {}, []
    for schema in await make_source(before, clock=clock).discover():
        topic = topic_rules(before).name_of(schema.table)
        await log.ensure_topic(TopicSettings(name=topic))
        kept = before_log_of(before).schema(schema)
        stored[topic] = StoredSchema("shop", topic, 1, kept, wire_of(before), {}, 0)
        wanted.append(before_log_of(after).schema(schema))
    source = make_source(after, clock=clock)
    return await differences(after, wanted, stored, log, source=source)


@pytest.mark.parametrize(
    ("old", "new"), [("redact", "truncate(2)"), ("redact", "hash"), ("truncate(2)", "truncate(3)")]
)
def test_another_mask_needs_another_topic_even_where_the_type_stays(
    tmp_path: Path, old: str, new: str
) -> None:
    found = asyncio.run(found_after(loaded_with(tmp_path, old), loaded_with(tmp_path, new)))

    assert [(each.what, each.needs_migration) for each in found] == [("mask of email", True)]
    with pytest.raises(ConfigError, match="mask of email of a topic cannot change"):
        check_needs_no_migration(found)


def test_hashes_of_another_salt_are_another_mask_and_do_not_show_the_salt(tmp_path: Path) -> None:
    before = loaded_with(tmp_path, "hash", salt="pepper-and-some-salt")
    after = loaded_with(tmp_path, "hash", salt="thyme-and-some-salt")

    [difference] = asyncio.run(found_after(before, after))

    assert difference.needs_migration
    assert "salt" in difference.found and "pepper" not in difference.found


def test_the_same_file_asks_for_nothing(tmp_path: Path) -> None:
    loaded = loaded_with(tmp_path, "hash")

    assert asyncio.run(found_after(loaded, loaded)) == []
