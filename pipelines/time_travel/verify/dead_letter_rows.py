"""Rows that a target cannot have, since their records were set aside as its dead letters."""

from collections.abc import Set
from dataclasses import replace

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.dead_letters.dead_letter import read_letters
from headwater.pipelines.loops.deliver.records_by_offset import RecordOffset
from headwater.pipelines.time_travel.verify.keyed_diff import ComparisonResult, DifferenceKind
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable

NOT_WRITTEN = (DifferenceKind.MISSING, DifferenceKind.CHANGED)


async def dead_letters_of(
    log: Log, pipeline: str, unit: str, subject: ComparedTable
) -> set[RecordOffset]:
    """Records of a table that this sink has set aside, and about which nobody has decided yet."""
    try:
        stored = await read_letters(log, pipeline)
    except LogRejected:
        return set()  # no pipeline has run that could have any
    letters = [each.letter for each in stored]
    mine = [each for each in letters if each.unit == unit and each.topic in subject.topics]
    ids = {topic: await log.topic_id(topic) for topic in {each.topic for each in mine}}
    return {
        (TopicPartition(each.topic, each.partition), each.offset)
        for each in mine
        if ids[each.topic] == each.topic_id
    }


def without_dead(
    compared: ComparisonResult, letters: Set[RecordOffset]
) -> tuple[ComparisonResult, list[RecordOffset]]:
    """The same without keys whose newest record is a dead letter, and where these records are. A
    row that is there after all, as a rebuild could write it, is compared as any other."""
    dead = {
        digest: each
        for digest, each in compared.keys.items()
        if each.kind in NOT_WRITTEN and each.place in letters
    }
    counts = {
        kind: count - sum(each.kind is kind for each in dead.values())
        for kind, count in compared.counts.items()
    }
    keys = {digest: each for digest, each in compared.keys.items() if digest not in dead}
    places = sorted(each.place for each in dead.values() if each.place is not None)
    return replace(compared, counts=counts, keys=keys), places
