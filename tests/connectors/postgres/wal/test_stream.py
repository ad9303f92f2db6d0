"""A running stream brings what was committed, keeps the server content, and says why it ended."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.wal.kernels import Kernels, kernels_of
from headwater.connectors.postgres.wal.stream import WalStream
from headwater.connectors.postgres.wal.wal_batch import RowChanges, WalBatch
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from headwater.core_log.foundation.speed import Speed
from scripts.embedded_postgres import embedded_postgres
from tests.databases import Guest

SLOT, PUBLICATION = "headwater_wal", "headwater_wal"
FIRST = "pg_create_logical_replication_slot"
PATIENCE = "-c wal_sender_timeout=1500ms"
"""The server's; the loop may stand still for a second of it, as it does for a third of one when the
garbage of all the tests before is collected."""


@pytest.fixture
def kernels(speed: Speed) -> Kernels:
    return kernels_of(speed)


def given_a_table(guest: Guest) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    guest.publish("orders", name=PUBLICATION)
    guest.execute(f"SELECT {FIRST}('{SLOT}', 'pgoutput')")


@asynccontextmanager
async def streaming(
    url: str, *, slot: str = SLOT, receive_bytes: int = 1 << 20, kernels: Kernels | None = None
) -> AsyncIterator[WalStream]:
    settings = PostgresSettings(url=SecretStr(url), tables=["*"])
    stream = await WalStream.start(
        await connect(settings, replication=True),
        SystemClock(),
        slot=slot,
        publications=[PUBLICATION],
        start_at=0,
        receive_bytes=receive_bytes,
        kernels=kernels or kernels_of("python"),
    )
    try:
        yield stream
    finally:
        await stream.close()


async def wal_batches_until(stream: WalStream, rows: int) -> list[WalBatch]:
    """Those with events."""
    found = list[WalBatch]()
    async with aclosing(stream.wal_batches()) as wal_batches:
        async for wal_batch in wal_batches:
            if wal_batch.events:
                found.append(wal_batch)
            if len(ids_of(found)) >= rows and wal_batch.position is not None:
                break
    return found


def ids_of(wal_batches: list[WalBatch]) -> list[int]:
    parts = [
        each
        for wal_batch in wal_batches
        for each in wal_batch.events
        if isinstance(each, RowChanges)
    ]
    return [int(text) for part in parts for text in part.rows[0].to_pylist()]


def with_option(url: str, **options: str) -> str:
    return f"{url}?{'&'.join(f'{key}={quote(value)}' for key, value in options.items())}"


async def test_committed_changes_arrive_and_confirmed_ones_are_forgotten(
    guest: Guest, kernels: Kernels
) -> None:
    given_a_table(guest)
    async with streaming(guest.url, kernels=kernels) as stream:
        guest.execute("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 500) i")

        wal_batches = await wal_batches_until(stream, 500)
        position = wal_batches[-1].position
        assert position is not None
        stream.confirm(position)

        assert ids_of(wal_batches) == list(range(1, 501))
        await until(lambda: confirmed(guest) == lsn_text(position))


def confirmed(guest: Guest) -> Any:
    return guest.value(
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    )


async def until(is_so: Callable[[], bool]) -> None:
    is_over = False
    while not is_over:
        is_over = await asyncio.to_thread(is_so)


async def test_a_transaction_larger_than_the_buffer_comes_in_parts(
    guest: Guest, kernels: Kernels
) -> None:
    given_a_table(guest)
    async with streaming(guest.url, receive_bytes=1 << 16, kernels=kernels) as stream:
        guest.execute("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 10000) i")

        wal_batches = await wal_batches_until(stream, 10_000)

    assert ids_of(wal_batches) == list(range(1, 10_001))
    assert len(wal_batches) > 5
    assert {each.position for each in wal_batches[:-1]} == {None}
    indexes = [each.indexes.tolist() for wal_batch in wal_batches for each in wal_batch.events]  # type: ignore[union-attr]
    assert [index for part in indexes for index in part] == list(range(10_000))


async def test_a_value_larger_than_the_buffer_comes_whole(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(guest.url, receive_bytes=1 << 16) as stream:
        guest.execute(
            "INSERT INTO orders SELECT i, repeat('x', i * 100000) FROM generate_series(1, 5) i"
        )

        wal_batches = await wal_batches_until(stream, 5)

    parts = [
        each
        for wal_batch in wal_batches
        for each in wal_batch.events
        if isinstance(each, RowChanges)
    ]
    notes = [note for part in parts for note in part.rows[1].to_pylist()]
    assert [len(each) for each in notes] == [100_000, 200_000, 300_000, 400_000, 500_000]


async def test_an_idle_stream_that_is_asked_says_how_far_it_is(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(guest.url) as stream:
        guest.execute("CREATE TABLE unpublished (id int)", "INSERT INTO unpublished VALUES (1)")
        end = guest.value("SELECT (pg_current_wal_lsn() - '0/0')::bigint")

        async with aclosing(stream.wal_batches()) as wal_batches:
            reached = 0
            while reached < end:
                stream.ask()
                wal_batch = await anext(wal_batches)
                assert wal_batch.events == ()
                assert wal_batch.position is not None
                reached = wal_batch.position


async def test_the_server_waits_while_nobody_takes_batches(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(with_option(guest.url, options=PATIENCE)) as stream:
        await asyncio.to_thread(
            guest.execute,
            "INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 5000) i",
            "SELECT pg_sleep(3)",  # twice its patience
        )

        assert len(ids_of(await wal_batches_until(stream, 5000))) == 5000


async def test_a_server_that_falls_silent_is_given_up(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(with_option(guest.url, options=PATIENCE)) as stream:
        await until(lambda: sender_of(guest) is not None)
        sender = sender_of(guest)
        assert sender is not None
        os.kill(sender, signal.SIGSTOP)
        try:
            with pytest.raises(SourceUnavailable, match="stopped answering"):
                await wal_batches_until(stream, 1)
        finally:
            os.kill(sender, signal.SIGCONT)


async def test_an_idle_server_is_not_given_up(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(with_option(guest.url, options=PATIENCE)) as stream:
        reading = asyncio.ensure_future(wal_batches_until(stream, 1))

        await asyncio.to_thread(
            guest.execute,
            "SELECT pg_sleep(3)",  # twice its patience
            "INSERT INTO orders VALUES (1, 'x')",
        )

        assert ids_of(await reading) == [1]


@pytest.mark.integration
async def test_a_server_that_stops_waits_for_what_it_asked_to_be_confirmed() -> None:
    with embedded_postgres() as server:
        guest = Guest(server.address, server.address)
        given_a_table(guest)
        async with streaming(server.address) as stream:
            guest.execute("INSERT INTO orders VALUES (1, 'x')")
            await wal_batches_until(stream, 1)
            stopping = asyncio.ensure_future(asyncio.to_thread(server.stop))

            with pytest.raises(SourceUnavailable, match="ended"):
                async with aclosing(stream.wal_batches()) as wal_batches:
                    async for wal_batch in wal_batches:
                        if wal_batch.is_wanted and wal_batch.position is not None:
                            stream.confirm(wal_batch.position)

            await stopping


def sender_of(guest: Guest) -> int | None:
    found = guest.rows(f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{SLOT}'")
    return found[0][0]  # type: ignore[no-any-return]


async def test_a_stream_without_a_slot_ends_this_life_of_the_source(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(guest.url, slot="headwater_missing") as stream:
        with pytest.raises(SourceUnavailable, match=r"headwater_missing.*does not exist"):
            await wal_batches_until(stream, 1)


async def test_a_slot_in_use_may_be_free_later(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(guest.url), streaming(guest.url) as second:
        with pytest.raises(SourceUnavailable, match="active"):
            await wal_batches_until(second, 1)


async def test_a_stream_that_the_server_ends_says_so(guest: Guest) -> None:
    given_a_table(guest)
    async with streaming(guest.url) as stream:
        guest.execute("INSERT INTO orders VALUES (1, 'x')")
        await wal_batches_until(stream, 1)

        guest.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            f" WHERE slot_name = '{SLOT}'"
        )

        with pytest.raises(SourceUnavailable, match="ended"):
            await wal_batches_until(stream, 1)


async def test_a_stream_over_a_local_socket_is_the_same(guest: Guest) -> None:
    given_a_table(guest)
    directory = str(guest.value("SHOW unix_socket_directories"))
    async with streaming(with_option(guest.url, host=directory)) as stream:
        guest.execute("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 3000) i")

        assert ids_of(await wal_batches_until(stream, 3000)) == list(range(1, 3001))
        assert stream.way == "socket"


async def test_a_stream_in_tls_is_the_same_by_way_of_libpq(guest: Guest, kernels: Kernels) -> None:
    given_a_table(guest)
    with tls(guest):
        async with streaming(
            with_option(guest.url, sslmode="require"), receive_bytes=1 << 16, kernels=kernels
        ) as stream:
            guest.execute(
                "INSERT INTO orders SELECT i, repeat('x', i) FROM generate_series(1, 900) i"
            )

            wal_batches = await wal_batches_until(stream, 900)
            position = wal_batches[-1].position
            assert position is not None
            stream.confirm(position)

            assert ids_of(wal_batches) == list(range(1, 901))
            assert stream.way == "libpq"
            await until(lambda: confirmed(guest) == lsn_text(position))


async def test_errors_of_the_server_arrive_over_tls_as_well(guest: Guest) -> None:
    given_a_table(guest)
    with tls(guest):
        url = with_option(guest.url, sslmode="require")
        with pytest.raises(SourceRejected, match="does not exist"):
            async with streaming(url, slot="headwater_missing"):
                pass
        async with streaming(url) as stream:
            guest.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                f" WHERE slot_name = '{SLOT}'"
            )
            with pytest.raises(SourceUnavailable, match="ended"):
                await wal_batches_until(stream, 1)


@contextmanager
def tls(guest: Guest) -> Iterator[None]:
    """The server offers it meanwhile, with a certificate that it made itself."""
    directory = Path(str(guest.value("SHOW data_directory")))
    owner = directory.stat()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost",
         "-keyout", directory / "server.key", "-out", directory / "server.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    for name in ("server.key", "server.crt"):
        (directory / name).chmod(0o600)
        os.chown(directory / name, owner.st_uid, owner.st_gid)
    guest.execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    while guest.value("SHOW ssl") != "on":
        pass
    try:
        yield
    finally:
        guest.execute("ALTER SYSTEM RESET ssl", "SELECT pg_reload_conf()")
