"""A database of no encoding: text that is not UTF-8 stops the source in words, and loses no row."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pydantic import SecretStr

from connectors.postgres.examining import examine
from connectors.postgres.settings import PostgresSettings
from core_log.errors import DecodeError, SourceRejected
from tests.connectors.postgres.snapshot.folding import Folded, differing, until_equal
from tests.databases import Guest, guest_in

PATIENCE_S = 30
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"
LATIN, FITS = r"E'caf\xe9'", r"E'caf\xc3\xa9'"


@pytest.fixture
def bare(postgres: str) -> Iterator[Guest]:
    with guest_in(postgres, f"bare_{uuid4().hex}", encoding="SQL_ASCII") as guest:
        guest.execute(ORDERS)
        guest.publish()
        yield guest


async def stopped(folded: Folded, guest: Guest) -> str:
    """What the source says when it stops."""
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises((SourceRejected, DecodeError)) as error:
            await until_equal(folded, guest)
    folded.killed()
    return str(error.value)


async def test_the_first_reading_stops_and_goes_on_when_it_is_mended(bare: Guest) -> None:
    bare.execute(
        f"INSERT INTO orders SELECT i, {FITS} FROM generate_series(1, 500) i",
        f"UPDATE orders SET note = {LATIN} WHERE id = 300",
    )
    folded = Folded()

    said = await stopped(folded, bare)
    again = await stopped(folded, bare)
    bare.execute(f"UPDATE orders SET note = {FITS} WHERE id = 300")
    async with asyncio.timeout(PATIENCE_S):
        await until_equal(folded, bare)

    assert "text that is not UTF-8" in said and "bytea" in said
    assert again == said
    assert not differing(folded, bare, "orders")


async def test_the_stream_stops_and_loses_nothing(bare: Guest) -> None:
    bare.execute(f"INSERT INTO orders VALUES (1, {FITS})")
    folded = Folded()
    await until_equal(folded, bare)
    bare.execute(
        f"INSERT INTO orders VALUES (2, {FITS})",
        f"INSERT INTO orders VALUES (3, {LATIN})",
        f"INSERT INTO orders VALUES (4, {FITS})",
    )

    said = await stopped(folded, bare)
    again = await stopped(folded, bare)
    before = [row["id"] for row in folded.rows("orders")]
    bare.execute(
        f"UPDATE orders SET note = {FITS} WHERE id = 3",
        "SELECT pg_drop_replication_slot('headwater_shop')",
    )
    await until_equal(folded, bare, position_mismatch="resnapshot")

    assert "text that is not UTF-8" in said and "position_mismatch: resnapshot" in said
    assert again == said
    assert before == [1, 2]
    assert not differing(folded, bare, "orders")


async def test_doctor_says_it_beforehand(bare: Guest) -> None:
    settings = PostgresSettings(url=SecretStr(bare.url), tables=("public.*",))

    [found] = await examine(settings, "shop")

    assert "SQL_ASCII" in found.problem and not found.is_fatal
    assert "bytea" in found.cure
