"""Where our events of MySQL and MariaDB may differ from Debezium's, each with its reason."""

from collections.abc import Callable, Sequence

from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.debezium.mysql_history import types_of
from tests.debezium.comparison import MISSING, Difference
from tests.debezium.differences import Permitted, in_schema, in_source


def permitted_of(guest: MysqlGuest) -> Sequence[Permitted]:
    types = {name: kind for name, (kind, _) in types_of(guest).items()}

    def of(*words: str) -> Callable[[Difference], bool]:
        return lambda each: any(word in types.get(each.table, "") for word in words)

    return [
        *SHARED,
        Permitted("Unsigned numbers beyond 2^63 stay numbers.", of("bigint unsigned")),
    ]


SHARED: Sequence[Permitted] = (
    Permitted("The version is ours.", in_source("version")),
    Permitted(
        "Each side has a snapshot of its own, and ours is beside the stream.",
        lambda each: (
            each.is_snapshot
            and in_source("ts_ms", "ts_us", "ts_ns", "file", "pos", "snapshot")(each)
        ),
    ),
    Permitted(
        "A truncate needs a key, so that compaction keeps the newest.",
        lambda each: each.path == ("key",) and each.theirs is None and "__headwater" in each.ours,
    ),
    Permitted(
        "A null is a null, and the schema has no default to put in its place.",
        lambda each: in_schema(each) and each.path[-1] == "default" and each.ours == MISSING,
    ),
)
