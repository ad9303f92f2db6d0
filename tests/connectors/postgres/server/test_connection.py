"""A connection writes values the same way whoever's defaults apply, and fails without secrets."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from headwater.connectors.postgres.server import connection as server_connection
from headwater.connectors.postgres.server.connection import connect, in_our_words
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot.replication_slot import slot_name
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from tests.databases import Guest
from tests.refused_logins import (
    SECRET,
    Refused,
    closed,
    unknown_database,
    unknown_host,
    wrong_password,
)


def settings_of(url: str) -> PostgresSettings:
    return PostgresSettings(url=SecretStr(url), tables=("public.*",))


@pytest.mark.parametrize("replication", [False, True])
async def test_values_are_written_the_same_whatever_the_database_prefers(
    guest: Guest, replication: bool
) -> None:
    name = guest.value("SELECT current_database()")
    for setting in ("timezone TO 'Asia/Tokyo'", "datestyle TO 'German'", "bytea_output TO escape",
                    "intervalstyle TO postgres", "extra_float_digits TO -10",
                    "statement_timeout TO '1ms'"):  # fmt: skip
        guest.execute(f'ALTER ROLE headwater_guest IN DATABASE "{name}" SET {setting}')
    question = (
        "SELECT timestamptz '2026-01-02 03:04:05+00', interval '1 day 2 s', '\\x00ff'::bytea,"
        " 0.1::float8 + 0.2::float8"
    )

    async with await connect(settings_of(guest.url), replication=replication) as connection:
        copied = b""
        async with connection.cursor().copy(f"COPY ({question}) TO STDOUT") as copy:
            async for part in copy:
                copied += bytes(part)

    assert copied == b"2026-01-02 03:04:05+00\tP1DT2S\t\\\\x00ff\t0.30000000000000004\n"


async def test_options_of_the_address_are_kept(guest: Guest) -> None:
    url = f"{guest.url}?options=-c%20work_mem%3D7MB&application_name=mine"

    async with await connect(settings_of(url), name="headwater shop") as connection:
        shown = await (await connection.execute("SHOW work_mem")).fetchone()
        named = await (await connection.execute("SHOW application_name")).fetchone()

    assert (shown, named) == (("7MB",), ("headwater shop",))


async def test_a_cancelled_connect_leaves_no_connection(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()

    async def never(connection: psycopg.AsyncConnection[Any], _: str) -> None:
        asked.put_nowait(connection)
        await asyncio.Event().wait()

    monkeypatch.setattr(server_connection, "TRANSACTIONS_LIMITED_SINCE", 0)
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", never)
    opening = asyncio.ensure_future(connect(settings_of(guest.url)))
    connection = await asked.get()
    opening.cancel()
    await asyncio.wait([opening])

    assert opening.cancelled()
    assert connection.closed


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (("headwater_guest@", "nobody:geheim@"), SourceRejected, 'role "nobody" does not exist'),
        (("/guest_", "/gast_"), SourceRejected, "correct the database in `url`"),
    ],
)
async def test_an_error_of_configuration_says_the_correction(
    guest: Guest, change: tuple[str, str], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as refused:
        await connect(settings_of(guest.url.replace(*change)))

    assert words in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("replication", [False, True])
async def test_a_pooler_that_would_have_values_written_otherwise_is_found_out(
    guest: Guest, replication: bool
) -> None:
    place = {name: str(value) for name, value in conninfo_to_dict(guest.url).items()}
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes all on, but for the options of the session."""
        await reader.readexactly(8)
        writer.write(b"N")  # no TLS
        size = int.from_bytes(await reader.readexactly(4), "big")
        said = (await reader.readexactly(size - 4)).split(b"\0")
        at = said.index(b"options")
        kept = b"\0".join(said[:at] + said[at + 2 :])
        answers, asking = await asyncio.open_connection(place["host"], int(place["port"]))
        asking.write((len(kept) + 4).to_bytes(4, "big") + kept)
        await asyncio.gather(passed(reader, asking), passed(answers, writer))
        for each in (asking, writer):
            each.close()
            await each.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as pooler:
        port = pooler.sockets[0].getsockname()[1]
        url = guest.url.replace(f":{place['port']}/", f":{port}/") + "?gssencmode=disable"
        with pytest.raises(SourceRejected, match="how values are to be written") as refused:
            await connect(settings_of(url), replication=replication)
        await over.wait()

    assert "connect `url` to PostgreSQL directly" in refused.value.hint


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
    writer.write_eof()


@pytest.mark.parametrize("of", [closed, unknown_host])
async def test_a_server_that_is_away_is_named_and_may_come_back(
    of: Callable[[str], Refused],
) -> None:
    refused = of("postgresql")

    with pytest.raises(SourceUnavailable) as caught:
        await connect(settings_of(refused.address))

    place = {name: str(value) for name, value in refused.place.items()}
    assert {name: str(value) for name, value in caught.value.facts.items()} == {
        **place,
        "reason": refused.reason,
    }
    assert "`url` of the source" in caught.value.hint


async def test_a_server_that_lets_nobody_in_is_named_with_its_own_words(postgres: str) -> None:
    missing = unknown_database(postgres)
    with wrong_password(postgres) as asked:
        expected = {
            missing.address: 'database "no_such_shop" does not exist',
            asked.address: 'password authentication failed for user "headwater_asked"',
        }
        for address, reason in expected.items():
            with pytest.raises(SourceRejected) as caught:
                await connect(settings_of(address))

            assert caught.value.facts["reason"] == reason
            assert str(caught.value.facts["port"]) == str(missing.place["port"])
            assert SECRET not in str(caught.value)


async def test_a_short_password_is_not_taken_out_of_other_words() -> None:
    with pytest.raises(SourceUnavailable) as caught:
        await connect(settings_of("postgresql://u:o@127.0.0.1:1/shop"))

    assert "connection refused" in str(caught.value) and "***" not in str(caught.value)


async def test_messages_that_could_quote_a_row_stay_inside(guest: Guest) -> None:
    async with await connect(settings_of(guest.url)) as connection:
        with pytest.raises(SourceRejected) as refused, in_our_words("the table cannot be read"):
            await connection.execute("SELECT 'geheim'::int")
        with pytest.raises(SourceRejected) as missing, in_our_words("the table cannot be read"):
            await connection.execute("SELECT * FROM nowhere")

    assert "geheim" not in str(refused.value) and "22P02" in str(refused.value)
    assert 'relation "nowhere" does not exist' in str(missing.value)


def test_names_of_slots_are_told_apart_though_few_characters_are_allowed() -> None:
    settings = settings_of("postgresql://")
    names = [slot_name(settings, each) for each in ("shop", "a-b", "a_b", "A-b", "x" * 80)]

    assert names[0] == "headwater_shop"
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 for name in names)
