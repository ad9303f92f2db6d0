"""A new form of a table is stored together with what follows from it."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.schema_history import schema_monitor, table_definition
from headwater.connectors.postgres.schema_history.schema_monitor import (
    FormWatch,
    TableFormChange,
)
from headwater.connectors.postgres.schema_history.table_definition import TableForm, part_of
from headwater.core_log.model.table_schema import TableId

ORDERS = TableId("public", "orders")
STORED = (
    '{"version":1,"at":10,"oid":16612,"partitioned":false,"persistence":"p",'
    '"may be unlogged":false,"leaves":{"16612":[%d,true,[]]},"key":[1],"primary":true,'
    '"attributes":[[1,"id",23,-1,918,null,false,null],[2,"note",%d,-1,%d,null,false,null]]}'
)
BEFORE, AFTER = (
    TableForm.parse(STORED % (16612, 23, 918))[0],
    TableForm.parse(STORED % (16640, 25, 926))[0],
)
EVERYTHING = 1 << 60


async def test_a_form_is_stored_no_sooner_than_that_its_table_is_to_be_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored_meanwhile: list[dict[str, str]] = []
    told: list[TableFormChange] = []

    async def look(connection: Any, tables: Any) -> dict[TableId, TableForm]:
        return {ORDERS: AFTER}

    async def wal_end(connection: Any) -> int:
        return 20

    class SlowCatalog:
        async def tables_of(self, connection: Any, oids: Sequence[int]) -> list[CapturedTable]:
            stored_meanwhile.append(watch.take_passed(EVERYTHING))
            return []

    monkeypatch.setattr(table_definition, "look", look)
    monkeypatch.setattr(schema_monitor, "wal_end", wal_end)
    catalog = cast(Catalog, SlowCatalog())
    watch = FormWatch((), catalog, {ORDERS: BEFORE}, may_read=True, told=told.extend)

    await watch.look_and_tell(cast(Any, None))

    assert [bool(each.cause.why) for each in told] == [True]
    assert stored_meanwhile == [{}]
    assert watch.take_passed(EVERYTHING).keys() == {part_of(ORDERS)}
