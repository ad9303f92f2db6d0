"""Each way of keeping a table does with a change what its page says."""

from typing import Any

import pytest

from headwater.sinks.sink import Sink
from tests.contract.mode_suite import ModeContract
from tests.contract.sink_suite import ORDERS
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic


class Target:
    def __init__(self, bench: SqlBench) -> None:
        self._bench = bench

    def sink_of(self, *, mode: str = "mirror", deletes: str = "hard") -> Sink:
        return self._bench.sink(deletes=deletes, tables={"*": {"mode": mode}})

    def all_rows(self, table: str) -> list[dict[str, Any]]:
        return self._bench.all_rows(table.rpartition(".")[2])


class TestSql(ModeContract):
    @pytest.fixture
    def target(self, bench: SqlBench) -> Target:
        return Target(bench)


async def test_each_of_many_rows_is_there_with_its_newest_values(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in range(9_001)))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, *(("u", {"id": number, "note": "b"}) for number in range(0, 9_001, 7)))
    topic.append(ORDERS, *(("c", {"id": number, "note": None}) for number in range(9_001, 9_100)))
    topic.append(ORDERS, *(("d", {"id": number}) for number in range(5, 9_001, 70)))
    await sink.apply(topic.slice())
    await sink.close()

    expected: dict[int, str | None] = {
        number: "b" if number % 7 == 0 else "a" for number in range(9_001)
    }
    expected |= dict.fromkeys(range(9_001, 9_100))
    gone = set(range(5, 9_001, 70))
    assert {row["id"]: row["note"] for row in all_orders(bench)} == {
        number: note for number, note in expected.items() if number not in gone
    }


async def test_rows_that_seem_new_and_are_there_already_are_written_over(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in range(2_000)))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    for note in ("b", "c"):
        topic.append(ORDERS, *(("c", {"id": each, "note": note}) for each in range(1_990, 3_500)))
        await sink.apply(topic.slice())
    await sink.close()

    assert {row["id"]: row["note"] for row in all_orders(bench)} == {
        number: "a" if number < 1_990 else "c" for number in range(3_500)
    }


def all_orders(bench: SqlBench) -> list[dict[str, Any]]:
    return bench.all_rows("orders")
