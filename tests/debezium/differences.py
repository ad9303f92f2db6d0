"""Where our events may differ from Debezium's, each with its reason, as users are told, too."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.debezium.comparison import MISSING, Difference, differences
from tests.debezium.events import Spelled, Told
from tests.debezium.headwater_capture import REJECTED

SHOWN_MAX, SHOWN_CHARACTERS_MAX = 20, 400
MESSAGES, OBJECT = "LOGICAL_DECODING_MESSAGE", "$LogicalDecodingMessageId@"
"""What messages count as in the record of a transaction's end, with us and with Debezium."""


class Permitted(NamedTuple):
    reason: str
    fits: Callable[[Difference], bool]


def in_source(*names: str) -> Callable[[Difference], bool]:
    return lambda each: (
        each.path[:2] == ("value", "source") and each.path[2:3] in {(name,) for name in names}
    )


def in_schema(each: Difference) -> bool:
    return each.path[0] in ("schema", "key schema")


def of_types(*types: str) -> Callable[[Difference], bool]:
    return lambda each: each.type in types


def _is_same_number(each: Difference) -> bool:
    if isinstance(each.ours, Spelled) and isinstance(each.theirs, Spelled):
        ours, theirs = float(each.ours.text), float(each.theirs.text)
        return ours == theirs or (each.type == "float4" and abs(ours / theirs - 1) < 0.5)
    return False


def _has_objects_address(each: Difference) -> bool:
    """The same collections with the same counts, but for the name that messages go by."""
    is_of_end = each.path == ("value", "data_collections")
    return is_of_end and _counts(each.ours) == _counts(each.theirs)


def _counts(collections: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, int]]:
    named = ((each["data_collection"], each["event_count"]) for each in collections)
    return Counter((MESSAGES if OBJECT in name else name, count) for name, count in named)


PERMITTED: Sequence[Permitted] = (
    Permitted(
        "The version is ours.",
        in_source("version"),
    ),
    Permitted(
        "Each side has a snapshot of its own, and tables are read side by side.",
        lambda each: (
            each.is_snapshot
            and in_source("ts_ms", "ts_us", "ts_ns", "lsn", "txId", "sequence", "transaction")(each)
        ),
    ),
    Permitted(
        "Which row is the first or last of a snapshot depends on what is read side by side.",
        lambda each: each.is_snapshot and in_source("snapshot")(each),
    ),
    Permitted(
        "The harness asks Debezium to leave nulls as they are, and then it leaves out this word.",
        lambda each: in_source("snapshot")(each) and (each.ours, each.theirs) == ("false", None),
    ),
    Permitted(
        "A truncate needs a key, so that compaction keeps the newest.",
        lambda each: each.path == ("key",) and each.theirs is None and "__headwater" in each.ours,
    ),
    Permitted(
        "A null is a null, and the schema has no default to put in its place.",
        lambda each: (
            (in_schema(each) and each.path[-1] == "default" and each.ours == MISSING)
            or (each.path[:2] == ("value", "before") and each.ours is None)
        ),
    ),
    Permitted(
        "Of a row that went only the key is known, so that only the key is never null.",
        lambda each: (
            in_schema(each)
            and each.path[-1] == "optional"
            and (each.ours, each.theirs) == (True, False)
        ),
    ),
    Permitted(
        "A generated column is in no event: the stream does not have it.",
        lambda each: each.topic.endswith("h_made") and each.path[-1] == "twice",
    ),
    Permitted(
        "Partitions are no tables of their own.",
        lambda each: each.topic.endswith(("h_part_low", "h_part_high")) and not each.ours,
    ),
    Permitted(
        "Before the birth of Christ, and at the ends of time, Debezium's snapshot and stream differ"
        " from each other.",
        lambda each: of_types("date")(each) and each.topic.endswith("t_far_date"),
    ),
    Permitted(
        "24:00:00 is not 00:00:00.",
        lambda each: each.type in ("time", "time(0)") and each.theirs == "00:00:00Z",
    ),
    Permitted(
        "Numbers are the same; Java 17 does not always find their shortest spelling.",
        _is_same_number,
    ),
    Permitted(
        "The order in which Debezium writes hstore's pairs is that of a hash table.",
        of_types("hw.hstore"),
    ),
    Permitted(
        "A negative scale is no scale of 2046.",
        of_types("numeric(5,-2)"),
    ),
    Permitted(
        "What cannot be expressed becomes a dead letter, where Debezium writes a null.",
        lambda each: each.ours == REJECTED,
    ),
    Permitted(
        "Arrays keep microseconds, second dimensions and nulls; one of bits is left out with the"
        " other types that Debezium does not read.",
        of_types("time[]", "int4[][]", "hw.mood[]", "bit(4)[]"),
    ),
    Permitted(
        "A placeholder of bytes, or of dates, is one in every mode.",
        lambda each: each.topic.endswith("h_toast") and each.path[-1] in ("raw", "days"),
    ),
    Permitted(
        "The record of a transaction's end names its collections in the order of a hash table, and"
        " each of its messages by the address of an object.",
        _has_objects_address,
    ),
)


def reason(each: Difference, permitted: Sequence[Permitted]) -> str | None:
    """Why this may be; None if it must not."""
    return next((one.reason for one in permitted if one.fits(each)), None)


def compare(
    ours: Mapping[str, Mapping[str, Told]],
    theirs: Mapping[str, Mapping[str, Told]],
    permitted: Sequence[Permitted],
    *,
    is_same_run: bool,
) -> set[str]:
    """The reasons that were needed."""
    needed: set[str] = set()
    for mode in theirs:
        strange = []
        for each in differences(mode, ours[mode], theirs[mode], is_same_run=is_same_run):
            why = reason(each, permitted)
            needed |= {why} if why else set()
            strange += [] if why else [each]
        kinds = {(each.topic, each.path): str(each)[:SHOWN_CHARACTERS_MAX] for each in strange}
        shown = "\n".join(list(kinds.values())[:SHOWN_MAX])
        assert not strange, f"{len(strange)} differences in the mode {mode}, such as\n{shown}"
    return needed
