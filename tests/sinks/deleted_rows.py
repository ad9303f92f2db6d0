"""A live table that keeps deleted rows, and a copy of it from a log that compaction has been at."""

from headwater.sinks.sink import CarryOver, RebuildRecipe, Sink
from tests.contract.sink_suite import ORDERS
from tests.slices import ScriptedTopic

SECOND = 1_000_000
ALL = CarryOver(("id",))


async def swapped(sink: Sink, carry_over: CarryOver) -> None:
    """Row 1 is deleted at 5 s and row 3 at 9 s, and of both the log then has only the deletes; row
    2 stays, and row 4 is deleted at 7 s and told whole."""
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": id, "note": f"first {id}"}) for id in (1, 2, 3, 4)))
    topic.append(ORDERS, ("u", {"id": 1, "note": "last"}))
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    for id, at in ((1, 5), (4, 7), (3, 9)):
        topic.append(ORDERS, ("d", {"id": id}), committed_us=at * SECOND)
    await sink.apply(topic.slice())

    shadow = await sink.shadow(RebuildRecipe(ORDERS.table))  # type: ignore[attr-defined]
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}, without=[0, 2, 5]))
    await sink.swap(ORDERS.table, carry_over)  # type: ignore[attr-defined]
    await shadow.close()
