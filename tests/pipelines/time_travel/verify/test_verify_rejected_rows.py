"""What a reader of rows and the stream may tell otherwise is never mended, and right rows stay."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from headwater.pipelines.time_travel.verify.result import SOURCE
from tests.databases import database_in
from tests.pipelines.time_travel.verify.test_verify_postgres import PIPELINE, running, verified
from tests.pipelines.time_travel.world import World, tell

FAR = "'294276-12-31 23:59:59.999'"
TABLE = (
    "CREATE TABLE t (id bigint PRIMARY KEY, v text, ms timestamp(3), us timestamp,"
    " n numeric(6,2), zoned timestamptz(0))"
)
THERE = (
    f"INSERT INTO t VALUES (1, 'there', {FAR}, NULL, 1, {FAR}), (2, 'there', NULL, NULL, 1, NULL)"
)
LATER = (
    f"INSERT INTO t VALUES (3, 'new', {FAR}, NULL, 1, {FAR}), (4, 'new', NULL, NULL, 1, NULL),"
    " (5, 'new', NULL, NULL, 1, NULL)",
    f"UPDATE t SET us = {FAR}, v = 'unknown' WHERE id IN (2, 4)",
    "UPDATE t SET n = 'NaN', v = 'unknown' WHERE id = 5",
)


def test_a_right_row_stays_though_a_value_of_it_is_far_and_one_that_no_column_holds_is_named(
    tmp_path: Path, postgres: str
) -> None:
    async def story(world: World, address: str) -> Any:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as admin:
            await admin.execute(TABLE)
            await admin.execute(THERE.encode())
            async with running(world):
                for statement in LATER:
                    await admin.execute(statement.encode())
                return await verified(world, repairs=True), await verified(world)

    with database_in(postgres, "unfit") as address:
        mended, after = tell(
            tmp_path, PIPELINE.replace("ADDRESS", address), lambda world: story(world, address)
        )

    for verdicts in (mended, after):
        source = verdicts[SOURCE]
        assert (source.compared.differing, source.repaired, source.problem) == (0, 0, "")
        assert sorted(key["id"] for key in source.incomparable.named) == [2, 4, 5]
        assert not source.is_equal
    with closing(sqlite3.connect(tmp_path / "target.db")) as database:
        rows = database.execute("SELECT id, v, ms FROM t ORDER BY id").fetchall()
    far = "294276-12-31 23:59:59.999"
    assert rows == [
        (1, "there", far), (2, "there", None), (3, "new", far), (4, "new", None), (5, "new", None),
    ]  # fmt: skip
