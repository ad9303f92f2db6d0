"""A position is gone on from only where nothing can have been missed; why not is said in words."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.discovery import advance, drop
from headwater.connectors.postgres.server.connection import PgConnection, connect
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings, SnapshotSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.slot.replication_slot import Slot
from headwater.connectors.postgres.slot.resume_check import (
    ServerState,
    check_resume,
    judge,
    switches_in,
)
from headwater.core_log.foundation.errors import (
    DecodeError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)
from tests.connectors.postgres.source_session import seen_late
from tests.databases import Guest

SERVER = ServerState("7001", 3, parse_lsn("0/9000"), 17_0000, "shop", is_standby=False)
SLOT = Slot(
    "headwater_shop", "pgoutput", "logical", "shop", None, None, "reserved",
    parse_lsn("0/5000"), parse_lsn("0/4000"), None, False, False, 0,
)  # fmt: skip
HISTORY = "1\t0/2000\tno recovery target specified\n\n2\t0/7000\tno recovery target specified\n"


def judged(position: dict[str, str], *, slot: Slot | None = SLOT, is_given: bool = False) -> Any:
    return judge(SERVER, slot, position, switches=switches_in(HISTORY), is_given=is_given)


@pytest.mark.parametrize("stream", ["0/5000", "0/6000", "0/9000"])
def test_a_position_at_the_slot_or_ahead_of_it_is_gone_on_from(stream: str) -> None:
    standing = judged({"stream": stream, "server": "7001/3"})

    assert (standing.start, standing.lost) == (parse_lsn(stream), "")


@pytest.mark.parametrize("timeline", ["2", "3"])
def test_a_timeline_that_was_left_behind_our_position_is_gone_on_from(timeline: str) -> None:
    standing = judged({"stream": "0/7000", "server": f"7001/{timeline}"})

    assert standing.start == parse_lsn("0/7000")


@pytest.mark.parametrize(
    ("position", "slot", "why"),
    [
        ({"stream": "0/4FFF", "server": "7001/3"}, SLOT, "the slot stands at 0/5000, beyond our"),
        ({"stream": "0/9001", "server": "7001/3"}, SLOT, "log ends at 0/9000, before our position"),
        ({"stream": "0/6000", "server": "7002/3"}, SLOT, "this is another server"),
        ({"stream": "0/7001", "server": "7001/2"}, SLOT, "left timeline 2 at 0/7000, before our"),
        ({"stream": "0/6000", "server": "7001/4"}, SLOT, "does not come from timeline 4"),
        ({"stream": "0/6000"}, None, "the replication slot is gone"),
        ({"stream": "0/6000"}, replace(SLOT, wal_status="lost"), "max_slot_wal_keep_size"),
        ({"stream": "0/6000"}, replace(SLOT, invalid_because="idle_timeout"), "(idle_timeout)"),
    ],
)
def test_a_position_behind_missed_changes_is_lost(
    position: dict[str, str], slot: Slot | None, why: str
) -> None:
    standing = judged(position, slot=slot)

    assert standing.start is None
    assert why in standing.lost


def test_a_slot_of_ours_without_a_position_is_made_anew_and_a_given_one_is_resumed() -> None:
    assert (judged({}).start, judged({}).lost) == (None, "")
    assert (judged({}, slot=None).start, judged({}, slot=None).lost) == (None, "")
    assert judged({}, is_given=True).start == SLOT.confirmed
    assert "invalidated" in judged({}, slot=replace(SLOT, wal_status="lost"), is_given=True).lost


@pytest.mark.parametrize("position", [{"stream": "here"}, {"stream": "0/1", "server": "a/b"}])
def test_a_position_set_by_hand_that_means_nothing_is_refused(position: dict[str, str]) -> None:
    with pytest.raises(DecodeError):
        judged(position)


def settings_of(guest: Guest, **choices: Any) -> PostgresSettings:
    return PostgresSettings(url=SecretStr(guest.url), tables=("public.*",), **choices)


async def streaming(guest: Guest, **choices: Any) -> tuple[PgConnection, PostgresSettings]:
    settings = settings_of(guest, **choices)
    return await connect(settings, replication=True), settings


async def test_a_slot_dropped_and_made_again_by_somebody_is_a_gap_and_never_a_silent_one(
    guest: Guest,
) -> None:
    line, settings = await streaming(guest)
    async with line:
        made = await replication_slot.create(line, "headwater_shop", exports=False)
        server = (await check_resume(line, settings, "headwater_shop", {})).server
        position = {"stream": lsn_text(made.consistent_lsn), "server": server.part}
        same = await check_resume(line, settings, "headwater_shop", position)
        guest.execute(
            "SELECT pg_drop_replication_slot('headwater_shop')",
            "CREATE TABLE missed (id int)",
        )
        with pytest.raises(PositionLost, match="the replication slot is gone"):
            await check_resume(line, settings, "headwater_shop", position)
        await replication_slot.create(line, "headwater_shop", exports=False)

        with pytest.raises(PositionLost, match="made it anew") as lost:
            await check_resume(line, settings, "headwater_shop", position)

    assert same.start == made.consistent_lsn
    assert "position_mismatch: resnapshot" in lost.value.hint


async def test_another_server_at_the_same_address_is_recognised(guest: Guest) -> None:
    line, settings = await streaming(guest)
    async with line:
        made = await replication_slot.create(line, "headwater_shop", exports=False)
        position = {"stream": lsn_text(made.consistent_lsn), "server": "7001/1"}

        with pytest.raises(PositionLost, match="this is another server"):
            await check_resume(line, settings, "headwater_shop", position)


@pytest.mark.parametrize(
    "choice", [{"position_mismatch": "resnapshot"}, {"snapshot": {"mode": "when_needed"}}]
)
async def test_a_lost_position_reads_all_again_if_the_file_says_so(
    guest: Guest, choice: dict[str, Any]
) -> None:
    line, settings = await streaming(guest, **choice)
    async with line:
        standing = await check_resume(line, settings, "headwater_shop", {"stream": "0/1"})

    assert (standing.start, standing.lost) == (None, "the replication slot is gone")


async def test_a_slot_of_another_kind_is_never_read_nor_dropped(guest: Guest) -> None:
    guest.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'test_decoding')")
    line, settings = await streaming(guest)
    async with line:
        with pytest.raises(SourceRejected, match="another kind, plugin or database"):
            await check_resume(line, settings, "headwater_shop", {})


async def test_a_slot_that_somebody_streams_from_is_waited_for(guest: Guest) -> None:
    guest.publish()
    line, settings = await streaming(guest)
    other, _ = await streaming(guest)
    async with line:
        await replication_slot.create(line, "headwater_shop", exports=False)
        other.pgconn.send_query(
            b"START_REPLICATION SLOT headwater_shop LOGICAL 0/0"
            b" (proto_version '1', publication_names 'headwater_shop')"
        )
        while not guest.value("SELECT active FROM pg_replication_slots"
                              " WHERE slot_name = 'headwater_shop'"):  # fmt: skip
            continue

        with pytest.raises(SourceUnavailable, match="another reader streams from the slot"):
            await check_resume(line, settings, "headwater_shop", {})
        with pytest.raises(SourceRejected, match="another reader streams from the slot"):
            await replication_slot.drop(line, "headwater_shop")
        assert await replication_slot.drop(line, "headwater_shop", ends_reader=True)
        assert not await replication_slot.drop(line, "headwater_shop")
    await other.close()


@pytest.mark.parametrize("what", ["advanced", "dropped"])
async def test_a_slot_is_free_as_soon_as_the_server_has_seen_that_its_reader_went(
    guest: Guest, what: str
) -> None:
    guest.publish()
    reader, settings = await streaming(guest)
    made = await replication_slot.create(reader, "headwater_shop", exports=False)
    reader.pgconn.send_query(
        b"START_REPLICATION SLOT headwater_shop LOGICAL 0/0"
        b" (proto_version '1', publication_names 'headwater_shop')"
    )
    while not guest.value("SELECT active FROM pg_replication_slots"
                          " WHERE slot_name = 'headwater_shop'"):  # fmt: skip
        continue

    with seen_late(reader.info.backend_pid):
        await reader.close()
        if what == "advanced":
            await advance(settings, "headwater_shop", made.consistent_lsn)
        else:
            assert "replication slot headwater_shop" in await drop(settings, "shop")


def test_rows_are_not_to_be_read_again_where_they_are_never_to_be_read() -> None:
    with pytest.raises(ValueError, match="never` rules out"):
        PostgresSettings(
            url=SecretStr("postgresql://localhost/shop"),
            tables=("*",),
            position_mismatch="resnapshot",
            snapshot=SnapshotSettings(mode="never"),
        )
