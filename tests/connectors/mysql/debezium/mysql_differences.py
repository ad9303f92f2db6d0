"""Where our events of MySQL and MariaDB may differ from Debezium's, each with its reason."""

from collections.abc import Callable, Mapping, Sequence

from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.debezium.mysql_history import types_of
from tests.debezium.comparison import MISSING, Difference
from tests.debezium.differences import Permitted, in_schema, in_source
from tests.debezium.headwater_capture import REJECTED

Fits = Callable[[Difference], bool]
COLUMNS: Mapping[tuple[str, str], str] = {
    ("h_plain", "d"): "timestamp(3)",
    ("h_pair", "v"): "json",
}
"""Types of columns of the other tables, where they matter."""


def permitted_of(guest: MysqlGuest) -> Sequence[Permitted]:
    types = {(name, "v"): kind for name, (kind, _) in types_of(guest).items()} | dict(COLUMNS)

    def of(*kinds: str) -> Fits:
        """A column whose type begins so."""
        return lambda each: any(
            types.get((each.table, part), "").startswith(kinds) for part in each.path
        )

    def if_read(fits: Fits) -> Fits:
        return lambda each: each.is_snapshot and fits(each)

    mysql = [
        Permitted(
            "Snapshot and stream write the same digits of a second.", if_read(of("timestamp"))
        ),
        Permitted("JSON is the server's own text.", of("json")),
        Permitted("The year 0 is 0.", lambda each: of("year")(each) and each.ours == 0),
        Permitted("A vector has the numbers that were stored.", of("vector")),
    ]
    maria = [
        Permitted("A zero timestamp is null in the stream, too.", of("timestamp")),
        Permitted("A uuid that ends with zeros is not moved.", of("uuid")),
        Permitted(COMMIT_TIME, _is_later_in_commit),
    ]
    return [
        *SHARED,
        *(maria if guest.server.is_mariadb else mysql),
        Permitted(
            "A snapshot has all digits of a float, and not the six that the server shows.",
            if_read(of("float")),
        ),
        Permitted("A float with declared digits is a float.", of("float(")),
        Permitted(
            "Each byte of latin1 is a character.",
            lambda each: of("varchar(20) character set latin1")(each) and "\ufffd" in each.theirs,
        ),
        Permitted(
            "A time is microseconds in every mode, as it may be negative.",
            lambda each: of("time")(each) and not of("timestamp")(each),
        ),
        Permitted("A label with a comma is the label.", of("enum")),
        Permitted("Unsigned numbers beyond 2^63 stay numbers.", of("bigint unsigned")),
    ]


TRUNCATE_TIME = "The time of a truncate is that of its commit."
COMMIT_TIME = "The time of a change is that of its commit, and not that of its statement."
BY_CHANCE = {TRUNCATE_TIME, COMMIT_TIME}
"""In MariaDB's whole seconds they are equal, unless a second begins between both."""
LATE_S_MAX = 60
SECOND = {"ts_ms": 1_000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}


def _is_later_in_commit(each: Difference) -> bool:
    if not in_source(*SECOND)(each):
        return False
    return bool(0 < each.ours - each.theirs <= LATE_S_MAX * SECOND[each.path[-1]])


def _is_truncate(each: Difference) -> bool:
    """Debezium knows the time of its statement, in milliseconds, and in MariaDB in seconds."""
    if each.table != "h_text" or not in_source(*SECOND)(each):
        return False
    return bool(abs(each.ours - each.theirs) <= SECOND[each.path[-1]])


def _is_beyond_nanoseconds(each: Difference) -> bool:
    """The deletes of such rows have a tombstone, which dead letters have not."""
    is_count = each.path == ("events",) and each.theirs - each.ours == 1
    return is_count and each.mode == "nanos"


SHARED: Sequence[Permitted] = (
    Permitted(
        "A time that nanoseconds cannot hold becomes a dead letter, where Debezium wraps it.",
        lambda each: each.ours == REJECTED or _is_beyond_nanoseconds(each),
    ),
    Permitted("The version is ours.", in_source("version")),
    Permitted(
        "Each side has a snapshot of its own, and ours is beside the stream.",
        lambda each: (
            each.is_snapshot
            and in_source("ts_ms", "ts_us", "ts_ns", "file", "pos", "snapshot")(each)
        ),
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
        TRUNCATE_TIME,
        _is_truncate,
    ),
    Permitted(
        "A null is a null, and the schema has no default to put in its place.",
        lambda each: in_schema(each) and each.path[-1] == "default" and each.ours == MISSING,
    ),
    Permitted(
        "Of a row that went only the key is known, so that only the key is never null.",
        lambda each: (
            in_schema(each)
            and each.path[-1] == "optional"
            and (each.ours, each.theirs) == (True, False)
        ),
    ),
)
