"""Shards merge into one table without collisions, and a table keeps its name where nobody says."""

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.file.spec import RouteRule
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.routes import Routes
from headwater.sinks.console.sink import json_lines, people_lines
from headwater.sinks.kafka.offset_topic import TopicWriter
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    changes_of,
    only,
    schema_of,
    told,
)

ROW = {"id": pa.int64(), "name": pa.string()}
SHARDS = RouteRule.model_validate(
    {"from": r"/tenant_(\d+)\.(.*)/", "to": "crm.$2", "add_key": {"tenant_id": "$1"}}
)


def route(source: str, to: str) -> RouteRule:
    return RouteRule.model_validate({"from": source, "to": to})


def test_rows_of_all_shards_carry_the_key_that_tells_them_apart() -> None:
    transform = RowTransforms([], [SHARDS])
    one = schema_of(ROW, table="tenant_1.people")
    two = schema_of(ROW, table="tenant_2.people")
    anna = {"id": 7, "name": "anna"}

    found = [
        only(transform.apply(changes_of(one, (INSERT, anna), (DELETE, {"id": 7})))),
        only(transform.apply(changes_of(two, (UPDATE, anna), before=[anna]))),
    ]

    assert {str(each.schema.table) for each in found} == {"crm.people"}
    assert found[0].schema.key == ("tenant_id", "id")
    assert told(found[0]) == [
        (INSERT, {"tenant_id": "1"} | anna),
        (DELETE, {"tenant_id": "1", "id": 7, "name": None}),
    ]
    assert told(found[1]) == [(UPDATE, {"tenant_id": "2"} | anna)]
    assert found[1].before is not None
    assert found[1].before.to_pylist() == [{"tenant_id": "2"} | anna]


def test_a_truncate_of_one_shard_empties_its_own_share_only() -> None:
    found = only(
        RowTransforms([], [SHARDS]).apply(
            changes_of(schema_of(ROW, table="tenant_2.people"), (TRUNCATE, {}))
        )
    )

    assert found.is_truncate
    assert found.truncated_where == {"tenant_id": "2"}


def test_a_sink_shows_the_share_that_a_truncate_empties_or_refuses_it() -> None:
    truncate = only(
        RowTransforms([], [SHARDS]).apply(
            changes_of(schema_of(ROW, table="tenant_2.people"), (TRUNCATE, {}), first_offset=5)
        )
    )
    outgoing = TopicWriter(
        topic="people",
        table=truncate.schema.table,
        partition_count=1,
        codec=codec_for(WireSettings(), topic="people"),
        compression=0,
        batch_bytes_max=1 << 20,
    )

    assert people_lines(truncate) == 'truncate crm.people tenant_id="2"\n'
    assert '"op": "truncate", "table": "crm.people", "row": {"tenant_id": "2"}' in json_lines(
        truncate
    )
    with pytest.raises(SinkRejected, match="one part of a table"):
        list(outgoing.encode(truncate, pipeline="shop", now_ms=0))


def test_a_table_without_a_key_gets_the_column_and_no_key() -> None:
    keyless = schema_of(ROW, table="tenant_1.log", key=())

    schema = Routes([SHARDS]).schema(keyless)

    assert schema.names == ("tenant_id", "id", "name") and schema.key == ()


@pytest.mark.parametrize(
    ("rules", "table", "target"),
    [
        ([route("public.*", "lake.$1")], "public.orders", TableId("lake", "orders")),
        ([route("public.*", "$1")], "public.orders", TableId("", "orders")),
        ([route("public.*", "raw.public_$1")], "other.orders", TableId("other", "orders")),
        ([route("*.*", "$1.$2_$$")], "public.a", TableId("public", "a_$")),
        ([route("public.a", "x.first"), route("*", "x.second")], "public.a", TableId("x", "first")),
        ([route("/(.*)\\.(.*)/", "all.$1.$2")], "public.a", TableId("all", "public.a")),
    ],
)
def test_the_first_route_that_matches_gives_the_name(
    rules: list[RouteRule], table: str, target: TableId
) -> None:
    namespace, _, name = table.rpartition(".")

    assert Routes(rules).target(TableId(namespace, name)).table == target


def test_two_tables_do_not_become_one_by_accident() -> None:
    routes = Routes([route("/shard_\\d+\\.(.*)/", "crm.$1")])
    routes.schema(schema_of(ROW, table="shard_1.people"))

    routes.schema(schema_of(ROW, table="shard_1.people"))
    with pytest.raises(ConfigError, match="add_key"):
        routes.schema(schema_of(ROW, table="shard_2.people"))


def test_a_routed_table_does_not_fall_on_one_that_has_the_name_already() -> None:
    routes = Routes([route("a.people", "b.people")])
    routes.schema(schema_of(ROW, table="b.people"))

    with pytest.raises(ConfigError, match="two tables become one"):
        routes.schema(schema_of(ROW, table="a.people"))


def test_a_column_that_is_there_already_is_not_added() -> None:
    schema = schema_of({"id": pa.int64(), "tenant_id": pa.int64()}, table="tenant_1.people")

    with pytest.raises(ConfigError, match="already has the column"):
        Routes([SHARDS]).schema(schema)


def test_a_group_that_the_pattern_does_not_have_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="names a group"):
        Routes([route("public.*", "lake.$2")])
