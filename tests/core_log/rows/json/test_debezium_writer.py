"""Events are Debezium's to the byte: operations, keys, tombstones, schemas, truncates."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.codec import TRUNCATE_KEY, Encoded, codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import changes, table

NOW_US = 1_700_000_002_000_500
CUSTOMERS = table(
    Column("id", pa.int32(), is_nullable=False), Column("name", pa.string()), key=("id",)
)
POSTGRES: dict[str, Any] = {
    "version": "3.6.3.Final",
    "connector": "postgresql",
    "name": "t",
    "ts_ms": 1_700_000_001_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["100","200"]',
    "ts_us": 1_700_000_001_000_000,
    "ts_ns": 1_700_000_001_000_000_000,
    "schema": "public",
    "table": "customers",
    "txId": 571,
    "lsn": 24_023_128,
    "xmin": None,
}
SOURCE_TEXT = (
    '{"version":"3.6.3.Final","connector":"postgresql","name":"t","ts_ms":1700000001000,'
    '"snapshot":"false","db":"shop","sequence":"[\\"100\\",\\"200\\"]","ts_us":1700000001000000,'
    '"ts_ns":1700000001000000000,"schema":"public","table":"customers","txId":571,'
    '"lsn":24023128,"xmin":null}'
)
TIMES = '"ts_ms":1700000002000,"ts_us":1700000002000500,"ts_ns":1700000002000500000'


def customers(
    *rows: tuple[int, str | None],
    operations: list[int] | None = None,
    before: list[dict[str, Any] | None] | None = None,
    source: dict[str, Any] | None = None,
) -> TableChanges:
    columns = [pa.array([row[0] for row in rows], pa.int32()), pa.array([row[1] for row in rows])]
    columns[1] = columns[1].cast(pa.string())
    images = None if before is None else pa.array(before, pa.struct(list(CUSTOMERS.arrow)))
    return changes(CUSTOMERS, columns, operations, images, source or POSTGRES)


def encode(what: TableChanges, **wire: Any) -> Encoded:
    return codec_for(WireSettings(**wire), topic="t.public.customers").encode(what, now_us=NOW_US)


def texts(column: pa.BinaryArray) -> list[str | None]:
    return [None if value is None else value.decode() for value in column.to_pylist()]


def decode(written: Encoded, schema: TableSchema = CUSTOMERS, **wire: Any) -> TableChanges:
    is_event = written.values.is_valid()
    codec = codec_for(WireSettings(**wire), topic="t.public.customers")
    return codec.decode(written.keys.filter(is_event), written.values.filter(is_event), schema)


@pytest.mark.parametrize(
    ("operation", "letter"),
    [(Operation.READ, "r"), (Operation.INSERT, "c"), (Operation.UPDATE, "u")],
)
def test_an_event_has_debeziums_fields_in_debeziums_order(operation: int, letter: str) -> None:
    written = encode(customers((1, "Ann"), operations=[operation]))

    assert texts(written.keys) == ['{"id":1}']
    assert texts(written.values) == [
        f'{{"before":null,"after":{{"id":1,"name":"Ann"}},"source":{SOURCE_TEXT},'
        f'"transaction":null,"op":"{letter}",{TIMES}}}'
    ]
    assert written.changes is None


def test_a_delete_is_followed_by_its_tombstone() -> None:
    written = encode(customers((1, None), (2, "Bob"), operations=[3, 1]))

    deleted, tombstone, created = texts(written.values)
    assert tombstone is None
    assert deleted == (
        f'{{"before":{{"id":1,"name":null}},"after":null,"source":{SOURCE_TEXT},'
        f'"transaction":null,"op":"d",{TIMES}}}'
    )
    assert created is not None and json.loads(created)["op"] == "c"
    assert texts(written.keys) == ['{"id":1}', '{"id":1}', '{"id":2}']
    assert written.changes is not None and written.changes.to_pylist() == [0, 0, 1]


def test_only_deletes_are_written_like_deletes_among_others() -> None:
    written = encode(customers((1, "Ann"), (2, None), operations=[3, 3]))

    assert texts(written.keys) == ['{"id":1}', '{"id":1}', '{"id":2}', '{"id":2}']
    values = [json.loads(each) for each in texts(written.values) if each]
    assert [value["before"] for value in values] == [
        {"id": 1, "name": "Ann"},
        {"id": 2, "name": None},
    ]
    assert [value["after"] for value in values] == [None, None]


def test_updates_carry_the_row_before_where_it_is_known() -> None:
    before = [None, {"id": 2, "name": 'B"b'}, None, None]
    what = customers(
        (1, "a"), (2, "b"), (3, "c"), (4, None), operations=[1, 2, 2, 3], before=before
    )

    written = encode(what)
    read = decode(written)

    values = [json.loads(each) for each in texts(written.values) if each]
    assert [value["before"] for value in values] == [*before[:3], {"id": 4, "name": None}]
    assert [value["op"] for value in values] == ["c", "u", "u", "d"]
    assert read.rows == what.rows and read.operations == what.operations
    assert read.before is not None and read.before.to_pylist() == before


@pytest.mark.parametrize("count", [3, 100])
def test_updates_alone_are_written_as_among_other_changes(count: int) -> None:
    rows = [(number, f'n"{number}') for number in range(count)]
    before: list[dict[str, Any] | None] = [
        {"id": number, "name": None if number % 3 else "\t"} for number in range(count)
    ]
    alone = customers(*rows, operations=[2] * count, before=before)
    among = customers((-1, None), *rows, operations=[3] + [2] * count, before=[None, *before])

    written, with_others = encode(alone), encode(among)

    assert texts(written.values) == texts(with_others.values)[2:]
    read = decode(written)
    assert read.before is not None and read.before.to_pylist() == before


def test_values_that_vary_in_the_source_block_vary_in_the_events() -> None:
    source = POSTGRES | {
        "ts_us": pa.array([5, 5, 6]),
        "sequence": pa.array(['["1","2"]', None, '["1","3"]']),
        "lsn": pa.array([7, 8, 9]),
    }
    what = customers((1, "a"), (2, "b"), (3, "c"), source=source)

    written = encode(what)

    blocks = [json.loads(each)["source"] for each in texts(written.values) if each]
    assert [block["ts_us"] for block in blocks] == [5, 5, 6]
    assert [block["sequence"] for block in blocks] == ['["1","2"]', None, '["1","3"]']
    assert [block["lsn"] for block in blocks] == [7, 8, 9]
    assert list(blocks[0]) == list(POSTGRES)
    assert decode(written).committed_us.to_pylist() == [5, 5, 6]


@pytest.mark.parametrize("start", [0, 3])
def test_values_that_commits_share_are_written_for_each_of_their_rows(start: int) -> None:
    commits = pa.array([5, 5, 5, 5, 6, 6, 6, 6, 6, 5])
    names = pa.array(['"a"'] * 4 + [None] * 2 + ["b"] * 4)
    source = POSTGRES | {
        "ts_us": commits.slice(start),
        "sequence": names.slice(start),
        "schema": pa.array(list("abcdefghij")).slice(start),
        "txId": commits.slice(start),
    }
    rows = [(number, "x") for number in range(start, 10)]

    written = encode(customers(*rows, source=source))

    blocks = [json.loads(each)["source"] for each in texts(written.values) if each]
    assert [block["ts_us"] for block in blocks] == commits.to_pylist()[start:]
    assert [block["txId"] for block in blocks] == commits.to_pylist()[start:]
    assert [block["sequence"] for block in blocks] == names.to_pylist()[start:]
    assert "".join(block["schema"] for block in blocks) == "abcdefghij"[start:]
    assert [block["table"] for block in blocks] == ["customers"] * len(rows)


def test_a_transaction_block_is_written_when_there_is_one() -> None:
    what = customers((1, "a"), (2, "b"))
    block = {"id": "571:9", "total_order": pa.array([1, 2]), "data_collection_order": 1}
    what = TableChanges(
        what.schema, what.rows, what.operations, what.source, transaction=block
    )  # fmt: skip

    values = [json.loads(each) for each in texts(encode(what).values) if each]

    assert values[1]["transaction"] == {
        "id": "571:9", "total_order": 2, "data_collection_order": 1
    }  # fmt: skip


def test_a_truncate_has_a_key_of_its_own_and_debeziums_event() -> None:
    what = changes(
        CUSTOMERS, [pa.nulls(1, pa.int32()), pa.nulls(1, pa.string())], [4], None, POSTGRES
    )

    written = encode(what)

    assert written.keys.to_pylist() == [TRUNCATE_KEY]
    assert texts(written.values) == [
        f'{{"before":null,"after":null,"source":{SOURCE_TEXT},"transaction":null,"op":"t",{TIMES}}}'
    ]


def test_key_columns_stand_in_the_order_of_the_key() -> None:
    schema = table(Column("a", pa.int32()), Column("b", pa.string()), key=("b", "a"))

    written = encode(changes(schema, [pa.array([1], pa.int32()), pa.array(['x"'])]))

    assert texts(written.keys) == ['{"b":"x\\"","a":1}']


def test_a_table_without_a_key_has_records_without_keys() -> None:
    schema = table(Column("a", pa.int32()))

    written = encode(changes(schema, [pa.array([1, 2], pa.int32())]))

    assert written.keys.to_pylist() == [None, None]
    assert decode(written, schema).rows.to_pydict() == {"a": [1, 2]}


def test_schemas_stand_beside_keys_and_values_as_connect_writes_them() -> None:
    written = encode(customers((1, "Ann")), has_schemas=True)

    key, value = (json.loads(column[0].as_py()) for column in (written.keys, written.values))
    row = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
    ]
    assert key == {
        "schema": {
            "type": "struct", "fields": row[:1], "optional": False,
            "name": "t.public.customers.Key",
        },
        "payload": {"id": 1},
    }  # fmt: skip
    envelope = value["schema"]
    assert envelope["name"] == "t.public.customers.Envelope" and envelope["version"] == 2
    assert envelope["fields"][0] == {
        "type": "struct", "fields": row, "optional": True,
        "name": "t.public.customers.Value", "field": "before",
    }  # fmt: skip
    assert [each["field"] for each in envelope["fields"]] == list(value["payload"])
    source = envelope["fields"][2]
    assert source["name"] == "io.debezium.connector.postgresql.Source"
    assert [each["field"] for each in source["fields"]] == list(POSTGRES)
    assert decode(written, has_schemas=True).rows.to_pylist() == [{"id": 1, "name": "Ann"}]


def test_flat_rows_say_what_happened_behind_their_columns() -> None:
    written = encode(customers((1, "Ann"), (2, None), operations=[2, 3]), value="flat-json")

    assert texts(written.values) == [
        '{"id":1,"name":"Ann","__deleted":"false","__op":"u",'
        '"__source_ts_ms":1700000001000,"__source_ts_us":1700000001000000}',
        '{"id":2,"name":null,"__deleted":"true","__op":"d",'
        '"__source_ts_ms":1700000001000,"__source_ts_us":1700000001000000}',
        None,
    ]
    assert texts(written.keys) == ['{"id":1}', '{"id":2}', '{"id":2}']


def test_hostile_names_and_values_stay_json() -> None:
    names = ["", '"', "\\", "\n", "a.b", "😀", "source", "before", "op", "null", ":null"]
    schema = table(*(Column(name, pa.string()) for name in names))
    cells = [pa.array([f"{name}\u2028\x1f", None, ":null"]) for name in names]

    written = encode(changes(schema, cells))

    rows = [json.loads(each)["after"] for each in texts(written.values) if each]
    assert rows == pa.RecordBatch.from_arrays(cells, schema=schema.arrow).to_pylist()
    assert "\\u001F" in texts(written.values)[0]  # type: ignore[operator]
    assert decode(written, schema).rows.columns == cells


def test_a_table_without_columns_has_empty_rows() -> None:
    schema = table()
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    what = TableChanges(schema, rows, pa.array([1, 1], pa.uint8()), POSTGRES)

    written = encode(what)

    assert json.loads(written.values[1].as_py())["after"] == {}
    assert len(decode(written, schema)) == 2


def test_sixteen_hundred_columns_come_back() -> None:
    schema = table(*(Column(f"c{place}", pa.int32()) for place in range(1_600)), key=("c7",))
    columns = [pa.array([place, None, -place], pa.int32()) for place in range(1_600)]
    columns[7] = pa.array([1, 2, 3], pa.int32())
    what = changes(schema, columns, [1, 1, 2])

    read = decode(encode(what), schema)

    assert read.rows == what.rows
