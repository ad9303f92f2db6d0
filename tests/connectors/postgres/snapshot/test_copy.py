"""Rows leave the server by COPY as they are, past libpq and through it, and errors are told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.copy import PIECE_BYTES, Copier, CopyStop, decode_tuples
from headwater.connectors.postgres.wal.kernels import kernels_of
from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.core_log.foundation.speed import Speed
from tests.databases import Guest

WAYS = pytest.mark.parametrize("is_past_libpq", [True, False], ids=["socket", "libpq"])
SPEEDS = pytest.mark.parametrize("speed", ["python", "fast"])


@asynccontextmanager
async def copier(
    guest: Guest, *, is_past_libpq: bool, speed: Speed = "python"
) -> AsyncIterator[Copier]:
    settings = PostgresSettings.model_validate({"url": guest.url, "tables": ["*"]})
    connection = await connect(settings)
    found = Copier(connection, kernels_of(speed), is_only_for_copies=is_past_libpq)
    try:
        yield found
    finally:
        found.close()
        await connection.close()


def copied(copier: Copier, query: str, *, columns: int = 1) -> list[tuple[str | None, ...]]:
    """Each piece is only there until the next is asked for."""
    rows: list[tuple[str | None, ...]] = []
    for piece in copier.copy_blocks(statement(query), CopyStop()):
        found = decode_tuples(piece, [True] * columns, copier.kernels).columns
        rows += zip(*(each.to_pylist() for each in found), strict=True)
    return rows


def statement(query: str) -> bytes:
    return f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()


@WAYS
@SPEEDS
async def test_text_of_every_kind_comes_as_it_is(
    guest: Guest, is_past_libpq: bool, speed: Speed
) -> None:
    values = [
        "",
        None,
        "\\N",
        "tab\tline\nback\\slash\r",
        "Zażółć 木",
        "d\x01\x05Z",
        "Z" + "x" * 4,
        "\\\\n",
    ]
    listed = ", ".join("NULL" if value is None else f"('{value}')" for value in values[2:])
    query = f"SELECT * FROM (VALUES (''), (NULL), {listed}) v"

    async with copier(guest, is_past_libpq=is_past_libpq, speed=speed) as one:
        first, again = copied(one, query), copied(one, query)

    assert again == first == [(value,) for value in values]


@WAYS
async def test_a_row_larger_than_the_buffer_comes_whole(guest: Guest, is_past_libpq: bool) -> None:
    size = 2 * PIECE_BYTES + 7

    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        large = copied(one, f"SELECT '1', repeat('x', {size}) UNION ALL SELECT '2', 'y'", columns=2)
        small = copied(one, "SELECT '3'")

    assert large == [("1", "x" * size), ("2", "y")]
    assert small == [("3",)]


@WAYS
async def test_many_rows_come_in_pieces(guest: Guest, is_past_libpq: bool) -> None:
    query = statement("SELECT repeat('x', 1000) FROM generate_series(1, 20000)")

    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        counts = [len(piece.starts) for piece in one.copy_blocks(query, CopyStop())]

    assert len(counts) > 1
    assert sum(counts) == 20_000


@WAYS
async def test_no_rows_are_no_pieces(guest: Guest, is_past_libpq: bool) -> None:
    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        assert list(one.copy_blocks(statement("SELECT 1 WHERE false"), CopyStop())) == []


@WAYS
async def test_an_error_after_many_rows_is_the_servers(guest: Guest, is_past_libpq: bool) -> None:
    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        with pytest.raises(psycopg.errors.DivisionByZero):
            copied(
                one,
                "SELECT (1 / (9000 - i))::text, repeat('x', 999) FROM generate_series(1, 9000) i",
                columns=2,
            )
        if is_past_libpq:
            assert copied(one, "SELECT '5'") == [("5",)]


@WAYS
async def test_a_connection_that_breaks_says_so(guest: Guest, is_past_libpq: bool) -> None:
    query = statement("SELECT repeat('x', 1000) FROM generate_series(1, 200000)")

    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        pieces = one.copy_blocks(query, CopyStop())
        next(pieces)
        guest.execute(f"SELECT pg_terminate_backend({one.connection.info.backend_pid}, 5000)")
        with pytest.raises((SourceUnavailable, psycopg.OperationalError)):
            list(pieces)


@WAYS
async def test_a_copy_that_is_not_wanted_any_more_ends(guest: Guest, is_past_libpq: bool) -> None:
    stop = CopyStop()

    async with copier(guest, is_past_libpq=is_past_libpq) as one:
        pieces = one.copy_blocks(statement("SELECT pg_sleep(1000)::text"), stop)
        stop.is_wanted = True

        assert list(pieces) == []
