"""A record that cannot be applied is kept byte for byte, once, with where it was and why."""

from typing import Any

import pytest

from headwater.core_log.foundation.errors import DecodeError, RecordsRejected, TransformRejected
from headwater.core_log.model.changes import Reject
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    FailureStage,
    append_dead_letters,
    dead_letter_home,
    dead_letter_topic,
    encode,
    encode_rejects,
    encode_removals,
    read_dead_letters,
)
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.loops.deliver.dead_letters import DeadLetterBudget, RejectedRecords
from headwater.pipelines.reports import DeadLettersAdded, Report
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog

NOW_MS = 1_700_000_000_000


def dead_letter(offset: int, *, error: str = "does not fit") -> DeadLetter:
    return DeadLetter(
        topic="shop.public.orders",
        partition=2,
        offset=offset,
        key=b'{"id":%d}' % offset,
        value=b"\xff not even text",
        headers=(("headwater.schema", b"3"), ("headwater.at", b"0/9A3F10#2"), ("empty", None)),
        stage=FailureStage.TRANSFORM,
        error=error,
        at="0/9A3F10#2",
        table="public.orders",
        task="sql",
    )


async def log_with_topic() -> MemoryLog:
    log = MemoryLog()
    await log.ensure_topic(dead_letter_topic("shop"))
    return log


async def test_dead_letters_are_read_back_as_they_were() -> None:
    log = await log_with_topic()

    await append_dead_letters(log, "shop", [dead_letter(4), dead_letter(5)], now_ms=NOW_MS)

    found = await read_dead_letters(log, "shop")
    assert [each.dead_letter for each in found] == [dead_letter(4), dead_letter(5)]
    assert [(each.number, each.since_ms) for each in found] == [(0, NOW_MS), (1, NOW_MS)]


async def test_a_record_that_fails_again_is_still_one_letter() -> None:
    log = await log_with_topic()

    for error in ("first", "second"):
        await append_dead_letters(
            log, "shop", [dead_letter(4, error=error), dead_letter(5)], now_ms=NOW_MS
        )

    found = await read_dead_letters(log, "shop")
    assert [(each.dead_letter.offset, each.dead_letter.error) for each in found] == [
        (4, "second"), (5, "does not fit"),
    ]  # fmt: skip


async def test_letters_that_somebody_decided_about_are_gone() -> None:
    log = await log_with_topic()
    await append_dead_letters(log, "shop", [dead_letter(4), dead_letter(5)], now_ms=NOW_MS)

    for batch in encode_removals([dead_letter(4)], now_ms=NOW_MS):
        await log.append(dead_letter_home("shop"), batch)

    assert [each.dead_letter.offset for each in await read_dead_letters(log, "shop")] == [5]


async def test_the_reason_of_a_record_is_what_status_says() -> None:
    log, told = await log_with_topic(), list[Report]()
    await append_dead_letters(log, "shop", [dead_letter(4), dead_letter(5)], now_ms=NOW_MS)
    home, why = dead_letter_home("shop"), "column total is decimal(5,2) and the text is no number"
    error = RecordsRejected(
        "records do not fit", topic=home.topic, partition=home.partition, reasons={1: why}
    )
    rejected = RejectedRecords(
        log,
        "shop",
        "sql",
        stop_after=StopAfter(),
        clock=SimulatedClock(NOW_MS),
        report=told.append,
    )

    assert await rejected.take(error, table="public.orders")

    assert told == [DeadLettersAdded("shop", "sql", "public.orders", 1, why)]


def test_the_headers_are_those_that_tools_for_kafka_connect_look_for() -> None:
    [batch] = encode([dead_letter(4)], pipeline="shop", now_ms=NOW_MS)

    [headers] = header_lists(decoded(batch.data).headers).to_pylist()
    said = {each["key"].decode(): each["value"] for each in headers}
    assert {name: value for name, value in said.items() if name.startswith("__connect")} == {
        "__connect.errors.topic": b"shop.public.orders",
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"4",
        "__connect.errors.connector.name": b"shop",
        "__connect.errors.task.id": b"sql",
        "__connect.errors.stage": b"TRANSFORMATION",
        "__connect.errors.class.name": b"sql",
        "__connect.errors.exception.class.name": b"RecordsRejected",
        "__connect.errors.exception.message": b"does not fit",
        "__connect.errors.exception.stacktrace": b"RecordsRejected: does not fit",
    }
    assert said["headwater.key"] == b'{"id":4}' and said["headwater.schema"] == b"3"


async def test_a_piece_of_a_source_is_known_by_its_place_there() -> None:
    log = await log_with_topic()
    table = TableId("", "orders")
    rejects = [Reject(table, b"a;b", "too few columns", f"orders.csv#{n}") for n in (17, 17, 18)]

    for partition, batch in encode_rejects("shop", rejects, now_ms=NOW_MS):
        assert partition == TopicPartition("shop.dlq", 0)
        await log.append(partition, batch)

    found = [each.dead_letter for each in await read_dead_letters(log, "shop")]
    assert [(each.at, each.value, each.is_record) for each in found] == [
        ("orders.csv#17", b"a;b", False),
        ("orders.csv#18", b"a;b", False),
    ]
    assert {(each.table, each.stage, each.error) for each in found} == {
        ("orders", FailureStage.SOURCE, "too few columns")
    }


def decoded(data: bytearray) -> RecordColumns:
    from headwater.core_log.records.batch_header import seal

    seal(data)
    return arrow_codec.decode(data)


def test_no_letters_are_no_batches() -> None:
    assert encode([], pipeline="shop", now_ms=NOW_MS) == []


@pytest.mark.parametrize(
    ("steps", "is_exhausted"),
    [
        ([(1000, 2)], False),
        ([(10, 1), (10, 1), (10, 1)], True),
        ([(10, 2), (1000, 0), (10, 1)], False),
        ([(10, 2), (80, 0), (10, 1)], True),
        ([(3, 3)], True),
    ],
)
def test_the_budget_counts_failures_among_the_last_records(
    steps: list[tuple[int, int]], is_exhausted: bool
) -> None:
    budget = DeadLetterBudget(failures=3, of_last=100)

    for seen, failed in steps:
        budget.add(seen, failed=failed)

    assert budget.is_exhausted is is_exhausted


def test_the_stage_says_who_could_not_take_the_record() -> None:
    facts: dict[str, Any] = {"topic": "t", "partition": 0, "reasons": {5: "y"}}
    undecoded = RecordsRejected("x", **facts)
    undecoded.__cause__ = DecodeError("x")

    stages = [
        FailureStage.of(each)
        for each in (TransformRejected("x", **facts), undecoded, RecordsRejected("x", **facts))
    ]

    assert stages == [FailureStage.TRANSFORM, FailureStage.DECODING, FailureStage.SINK]


def test_rejected_records_are_said_with_the_first_reason() -> None:
    error = RecordsRejected("x", topic="t", partition=0, reasons={7: "too long", 3: "a null key"})

    assert "records=2, first_offset=3, first_reason='a null key'" in str(error)
