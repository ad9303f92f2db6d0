"""A table gets another key in place once its topic's next generation has one, and not else."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headwater.core_log.foundation.errors import SchemaRefused
from tests.sinks.sql.databases import SqlBench
from tests.slices import COMMITTED_US, Change, ScriptedTopic, schema_of

COLUMNS = {"id": pa.int64(), "email": pa.string(), "note": pa.string()}
BY_ID = schema_of("public.people", **COLUMNS)
BY_EMAIL = schema_of("public.people", key=("email",), **COLUMNS)
FORMER, NEXT = "shop.public.people", "shop.public.people.g2"


async def filled(bench: SqlBench, **settings: Any) -> Any:
    """A sink that has applied all of the former topic."""
    topic, sink = ScriptedTopic(FORMER), bench.sink(**settings)
    topic.append(
        BY_ID,
        ("c", {"id": 1, "email": "a", "note": "x"}),
        ("c", {"id": 2, "email": "b", "note": "x"}),
    )
    await sink.committed_offsets([FORMER, NEXT])
    await sink.apply(topic.slice())
    return sink


def next_topic(name: str = NEXT) -> ScriptedTopic:
    """Whose changes come a second later."""
    topic, later = ScriptedTopic(name, topic_id="topic-2"), COMMITTED_US + 1_000_000
    changes: list[Change] = [("d", {"email": "a"}), ("u", {"id": 2, "email": "b", "note": "y"})]
    topic.append(BY_EMAIL, *changes, ("c", {"id": 1, "email": "c"}), committed_us=[later] * 3)
    return topic


def key_of(bench: SqlBench) -> list[str]:
    return list(sa.inspect(bench.engine).get_pk_constraint("people")["constrained_columns"])


async def test_a_mirror_goes_on_under_the_new_key(bench: SqlBench) -> None:
    sink = await filled(bench)

    planned = await sink.plan([BY_EMAIL])
    await sink.apply(next_topic().slice())
    after = await sink.plan([BY_EMAIL])
    await sink.close()

    assert "`run --migrate`" in planned[0] and len(planned) > 1 and after == []
    assert key_of(bench) == ["email"]
    rows = sorted(await bench.rows("public.people"), key=lambda row: str(row["email"]))
    assert rows == [
        {"id": 2, "email": "b", "note": "y"},
        {"id": 1, "email": "c", "note": None},
    ]


async def test_a_history_goes_on_under_the_new_key(bench: SqlBench) -> None:
    sink = await filled(bench, tables={"*": {"mode": "scd2"}})

    await sink.apply(next_topic().slice())
    await sink.close()

    assert key_of(bench) == ["email", "_headwater_valid_from"]
    rows = bench.all_rows("people")
    current = {(row["id"], row["email"], bool(row["_headwater_is_current"])) for row in rows}
    assert current == {(1, "a", False), (2, "b", False), (2, "b", True), (1, "c", True)}


async def test_a_slice_that_breaks_off_leaves_rows_and_offsets_as_they_were(
    bench: SqlBench,
) -> None:
    sink, topic = await filled(bench), next_topic()
    part = topic.slice()

    async def broken(_: Any) -> Any:
        async for changes in part.read(part):
            yield changes
        raise RuntimeError("the log has gone")

    with pytest.raises(RuntimeError):
        await sink.apply(replace(part, read=broken))
    between = sorted(row["id"] for row in await bench.rows("public.people"))
    await sink.committed_offsets([FORMER, NEXT])
    await sink.apply(part)
    await sink.close()

    assert between == [1, 2]
    assert sorted(row["email"] for row in await bench.rows("public.people")) == ["b", "c"]


async def test_no_other_topic_changes_the_key(bench: SqlBench) -> None:
    sink = await filled(bench)

    with pytest.raises(SchemaRefused, match="has another key"):
        await sink.apply(next_topic("other.public.people.g2").slice())
    await sink.close()

    assert key_of(bench) == ["id"]


async def test_another_key_from_the_same_topic_is_refused(bench: SqlBench) -> None:
    topic, sink = ScriptedTopic(FORMER), bench.sink()
    topic.append(BY_ID, ("c", {"id": 1, "email": "a"}))
    await sink.committed_offsets([FORMER])
    await sink.apply(topic.slice())
    topic.append(BY_EMAIL, ("c", {"id": 2, "email": "b"}))

    with pytest.raises(SchemaRefused, match="has another key"):
        await sink.apply(topic.slice())
    await sink.close()

    assert [row["id"] for row in await bench.rows("public.people")] == [1]
