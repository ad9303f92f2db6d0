"""A database of no encoding: text that is not UTF-8 costs its row, which is set aside with what is
known of it, and nobody else."""

from collections.abc import Iterator
from contextlib import aclosing
from uuid import uuid4

import orjson
import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import Reject
from tests.connectors.postgres.snapshot.table_log import Folded, differing, live, source_of
from tests.databases import Guest, guest_in

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text, code varchar(9), big text)"
LATIN, FITS = r"E'caf\xe9'", r"E'caf\xc3\xa9'"
MANY = 500
"""More than are looked at one by one."""


@pytest.fixture
def bare(postgres: str) -> Iterator[Guest]:
    with guest_in(postgres, f"bare_{uuid4().hex}", encoding="SQL_ASCII") as guest:
        guest.execute(ORDERS, "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
        guest.publish()
        yield guest


async def read(folded: Folded, source: PostgresSource) -> list[Reject]:
    """Until everything up to now has been read; what was set aside."""
    found = list[Reject]()
    async with aclosing(source.changes(folded.positions)) as coming:
        async for batch in coming:
            folded.take(batch)
            found += batch.rejects
    return found


async def until_now(folded: Folded, guest: Guest) -> list[Reject]:
    return await read(folded, source_of(guest, until_end=True))


def ids(folded: Folded) -> list[int]:
    return [row["id"] for row in folded.rows("orders")]


@pytest.mark.parametrize("count", [3, MANY])
async def test_the_first_reading_sets_such_a_row_aside(bare: Guest, count: int) -> None:
    bare.execute(
        rf"INSERT INTO orders SELECT i, {FITS} || E'\\\n' FROM generate_series(1, {count}) i",
        r"UPDATE orders SET note = E'\\a\n\xe9' WHERE id = 2",
    )
    folded = Folded()

    rejects = await until_now(folded, bare)

    assert set(range(1, count + 1)) - set(ids(folded)) == {2}
    assert [str(each.table) for each in rejects] == ["public.orders"]
    assert [each.problem for each in rejects] == ["text that is not UTF-8: note"]
    assert [orjson.loads(each.content) for each in rejects] == [{"id": "2", "note": "\\a\n<e9>"}]


async def test_the_stream_sets_such_a_row_aside_and_goes_on(bare: Guest) -> None:
    folded = Folded()
    await until_now(folded, bare)
    bare.execute(
        f"INSERT INTO orders VALUES (2, {FITS})",
        f"INSERT INTO orders VALUES (3, 'x', {LATIN}), (4, 'y', {FITS})",
        f"INSERT INTO orders SELECT i, {FITS} FROM generate_series(5, {MANY}) i",
        f"UPDATE orders SET note = {LATIN} WHERE id = 2",
    )

    rejects = await until_now(folded, bare)
    stale = folded.rows("orders")[0]
    bare.execute(
        f"UPDATE orders SET code = {FITS} WHERE id = 3",
        f"UPDATE orders SET note = {FITS} WHERE id = 2",
    )
    later = await until_now(folded, bare)

    assert [(each.problem, orjson.loads(each.content)) for each in rejects] == [
        ("text that is not UTF-8: code", {"id": "3", "code": "caf<e9>"}),
        ("text that is not UTF-8: note", {"id": "2", "note": "caf<e9>"}),
    ]
    assert all("#" in each.at for each in rejects), "it says where in the stream that was"
    assert stale["note"] == "café", "what was there stays until something readable comes"
    assert not later and not differing(folded, bare, "orders")


async def test_an_undecodable_value_is_left_out_of_old_images_and_deleted_rows(bare: Guest) -> None:
    bare.execute(
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        f"INSERT INTO orders VALUES (1, {LATIN}), (2, {LATIN}), (3, {FITS})",
    )
    folded = Folded()
    first = await until_now(folded, bare)
    bare.execute(
        f"UPDATE orders SET note = {FITS} WHERE id = 1", "DELETE FROM orders WHERE id IN (2, 3)"
    )

    later = await until_now(folded, bare)

    assert len(first) == 2 and not later
    assert not differing(folded, bare, "orders") and ids(folded) == [1]


async def test_a_key_that_cannot_be_read_is_asked_of_nobody(bare: Guest) -> None:
    bare.execute(
        "CREATE TABLE t (name text PRIMARY KEY, n int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t VALUES ('a', 0, repeat('x', 9000)), ({LATIN}, 0, repeat('y', 9000))",
    )
    folded = Folded()
    first = await until_now(folded, bare)
    bare.execute("UPDATE t SET n = 1", f"UPDATE t SET name = 'b' WHERE name = {LATIN}")

    later = await until_now(folded, bare)

    assert [orjson.loads(each.content) for each in (*first, *later)] == [{"name": "caf<e9>"}] * 2
    assert not differing(folded, bare, "t")


async def test_a_large_value_that_is_read_anew_may_be_one(bare: Guest) -> None:
    bare.execute(
        "INSERT INTO orders SELECT i, 'a', '', repeat('x', 9000) FROM generate_series(1, 3) i",
    )
    folded = Folded()
    await until_now(folded, bare)
    bare.execute(
        "UPDATE orders SET note = 'b'",
        r"UPDATE orders SET big = repeat(E'\xe9', 9000) WHERE id = 2",
        "UPDATE orders SET note = 'c'",
    )

    rejects = await until_now(folded, bare)
    bare.execute("UPDATE orders SET big = repeat('z', 9000) WHERE id = 2")
    later = await until_now(folded, bare)

    assert {each.problem for each in rejects} == {"text that is not UTF-8: big"}
    assert {orjson.loads(each.content)["id"] for each in rejects} == {"2"}
    assert len({each.at for each in rejects}) == len(rejects) == 3
    assert not later and not differing(folded, bare, "orders")


async def test_text_without_a_place_in_utf8_is_named(postgres: str) -> None:
    """Only the server can turn text of other encodings into UTF-8, and it refuses: the stream
    stops, and the first reading leaves the table out alone."""
    reports = list[SourceReport]()
    with guest_in(postgres, f"old_{uuid4().hex}", encoding="WIN1252") as guest:
        guest.execute(ORDERS)
        guest.publish()
        folded = Folded()
        await until_now(folded, guest)
        guest.execute("INSERT INTO orders SELECT 1, convert_from('\\x81', 'SQL_ASCII')")

        with pytest.raises(SourceRejected) as stream:
            await until_now(folded, guest)
        await live(Folded(), source_of(guest, until_end=True, report=reports.append))

    [rows] = [each.finding for each in reports if isinstance(each, Remark) and each.finding]
    assert "text that is not UTF-8" in str(stream.value)
    assert "position=" in str(stream.value) and "position_mismatch" in str(stream.value)
    assert "text that is not UTF-8" in rows.problem and rows.left_out == ("public.orders",)


async def test_doctor_says_it_beforehand(bare: Guest) -> None:
    settings = PostgresSettings(url=SecretStr(bare.url), tables=("public.*",))

    [found] = await examine(settings, "shop")

    assert "SQL_ASCII" in found.problem and "set aside" in found.problem and not found.is_fatal
    assert "bytea" in found.hint
