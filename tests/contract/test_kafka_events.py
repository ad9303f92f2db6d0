"""What others wrote into topics comes as it was meant; what nobody can read is set aside."""

from decimal import Decimal

import pyarrow as pa

from headwater.connectors.kafka.debezium_events import table_of
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.settings import WireSettings
from tests.contract.foreign_topics import NOW_MS, PLAIN, TYPED, Cluster, read
from tests.contract.source_suite import flat
from tests.slices import changes_of, schema_of


async def test_events_come_back_as_they_went_in(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    row = {"id": 1, "total": Decimal("12.50"), "day": None, "at": None, "note": 'a "b"\n€'}
    changes = changes_of(TYPED, ("c", row), ("u", row | {"note": None}), ("d", {"id": 1}))
    await cluster.append_changes(topic, changes, WireSettings(has_schemas=True, decimal="precise"))

    [told] = await read(cluster.source(decimal="precise"), changes=3)

    [found] = told.batch.tables
    assert found.schema == TYPED
    assert found.rows.to_pylist() == changes.rows.to_pylist()
    assert found.operations.equals(changes.operations)
    assert found.committed_us.equals(changes.committed_us)
    assert found.commits == f"{topic}-0" and found.indexes == pa.array([0, 1, 2])


async def test_a_schema_that_changes_in_the_middle_is_followed(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    wire = WireSettings(has_schemas=True)
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), rate=pa.float64())
    narrow = schema_of("public.orders", id=pa.int64(), note=pa.string())
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 1})), wire)
    await cluster.append_changes(topic, changes_of(wider, ("c", {"id": 2, "rate": 0.5})), wire)
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 3})), wire)

    told = await read(cluster.source(), changes=3)

    names = [changes.schema.names for after in told for changes in after.batch.tables]
    assert names == [("id", "note"), ("id", "note", "rate"), ("id", "note")]


async def test_new_members_without_schemas_widen_the_table_and_this_is_remembered(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("public.orders")
    narrow = schema_of("public.orders", id=pa.int64())
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 1})), WireSettings())
    told = await read(cluster.source(), changes=1)
    wider = schema_of("public.orders", id=pa.int64(), rate=pa.float64())
    change = changes_of(wider, ("c", {"id": 2, "rate": 0.5}))
    await cluster.append_changes(topic, change, WireSettings())

    more = await read(cluster.source(), told[-1].positions, changes=1)

    assert more[0].batch.tables[0].schema.names == ("id", "rate")
    assert '"rate"' in more[-1].positions[f"schema/{topic}"]


async def test_a_truncate_stands_where_it_stood(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    for change in (("c", {"id": 1}), ("t", {}), ("c", {"id": 2})):
        await cluster.append_changes(topic, changes_of(PLAIN, change), WireSettings())

    told = await read(cluster.source(), changes=3)

    codes = [change.operation for change in flat(told)[TableId("public", "orders")]]
    assert codes == [Operation.INSERT, Operation.TRUNCATE, Operation.INSERT]


async def test_bad_records_are_set_aside_and_the_others_come(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    good = [(None, b'{"id":%d,"note":"x"}' % number) for number in range(3)]
    bad = [(None, b"no json"), (None, b'{"id":"text","note":1}'), (None, b"[1]"), (None, b"")]
    await cluster.append(topic, good[0], bad[0], good[1], bad[1], bad[2], good[2], bad[3])

    told = await read(cluster.source(format="json"), changes=3)

    rejects = [reject for after in told for reject in after.batch.rejects]
    assert [reject.at for reject in rejects] == [f"{topic}-0#{at}" for at in (1, 3, 4, 6)]
    assert rejects[0].content == b"no json" and "no json" not in rejects[0].problem
    [changes] = flat(told).values()
    assert [(change.row["id"], change.place) for change in changes] == [(0, 0), (1, 2), (2, 5)]


async def test_bad_events_are_set_aside_too(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    for number in range(3):
        change = changes_of(PLAIN, ("c", {"id": number, "note": "x", "rate": 1.5}))
        await cluster.append_changes(topic, change, WireSettings())
        await cluster.append(topic, (b"{}", b'{"op":"c","after":{"id":"x"}}'))

    told = await read(cluster.source(), changes=3)

    assert sum(len(after.batch.rejects) for after in told) == 3
    [changes] = flat(told).values()
    assert [change.row["id"] for change in changes] == [0, 1, 2]


async def test_values_of_another_kind_between_events_are_set_aside(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    wire = WireSettings(has_schemas=True)
    others = (
        b'{"schema":{"type":"string","optional":false},"payload":"heartbeat"}',
        b'{"schema":{"type":',
        b"\xff\xfe",
    )
    for number, other in enumerate(others):
        change = changes_of(PLAIN, ("c", {"id": number, "note": "x", "rate": 1.5}))
        await cluster.append_changes(topic, change, wire)
        await cluster.append(topic, (b"{}", other))
    await cluster.append_changes(topic, changes_of(PLAIN, ("t", {})), wire)

    told = await read(cluster.source(), changes=4)

    assert sum(len(after.batch.rejects) for after in told) == 3
    [changes] = flat(told).values()
    assert [change.row["id"] for change in changes] == [0, 1, 2, None]


async def test_json_rows_may_lack_members_and_bring_new_ones(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (b"1", b'{"id":1,"a":true}'), (b"2", b'{\n"id": 2,\n"b": [1.5]}'))

    told = await read(cluster.source(format="json", key="id"), changes=2)
    await cluster.append(topic, (b"3", b'{"id":3,"c":{"d":"2026-01-01T00:00:00"}}'), (b"1", None))
    told += await read(cluster.source(format="json", key="id"), told[-1].positions, changes=2)

    [changes] = flat(told).values()
    assert [change.row for change in changes] == [
        {"id": 1, "a": True, "b": None},
        {"id": 2, "a": None, "b": [1.5]},
        {"id": 3, "a": None, "b": None, "c": {"d": "2026-01-01T00:00:00"}},
        {"id": 1, "a": None, "b": None, "c": None},
    ]
    assert [change.operation for change in changes] == [Operation.UPDATE] * 3 + [Operation.DELETE]


async def test_raw_records_are_rows_with_everything_they_had(cluster: Cluster) -> None:
    topic = await cluster.topic("blobs")
    await cluster.append(topic, (None, b"\xff\x00"), headers=[("trace", b"\x01"), ("none", None)])
    await cluster.append(topic, (b"k", None))

    told = await read(cluster.source(format="raw"), changes=2)

    [changes] = flat(told).values()
    first, second = (change.row for change in changes)
    assert (first["key"], first["value"], first["offset"]) == (None, b"\xff\x00", 0)
    assert first["headers"] == [
        {"key": "trace", "value": b"\x01"},
        {"key": "none", "value": None},
    ]
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, [])
    assert second["timestamp"].timestamp() * 1_000 == NOW_MS


def test_tables_are_named_as_debezium_names_topics() -> None:
    assert table_of("shop.public.orders") == TableId("public", "orders")
    assert table_of("shop.a.b.c") == TableId("a.b", "c")
    assert table_of("shop.orders") == TableId("", "orders")
    assert table_of("orders") == TableId("", "orders")
