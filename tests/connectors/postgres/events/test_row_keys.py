"""Keys of tables that the position keeps, and what is taken of them."""

import pytest

from headwater.connectors.postgres.events.row_keys import PART, KeyHistory, key_of
from headwater.connectors.postgres.wal.wal_batch import Relation, RelationColumn
from headwater.core_log.foundation.errors import DecodeError

COLUMNS = tuple(RelationColumn(name, True, 23, -1) for name in ("id", "code"))
NAMES = ("id", "code")


def test_learned_keys_are_reported_once_and_known_after_a_restart() -> None:
    keys = KeyHistory.restore({}, [])
    keys.learn(1, ("tenant", "id"))
    keys.learn(2, ())

    told, again = keys.news(), keys.news()
    after = KeyHistory.restore(told, [])
    after.learn(1, ("tenant", "id"))

    assert not again and not after.news()
    assert (after.of(1), after.of(2), after.of(3)) == (("tenant", "id"), (), None)


@pytest.mark.parametrize(
    "text", ["", "keys", "[]", '{"version": 99}', '{"version": 1}', '{"version": 1, "tables": 5}']
)
def test_a_part_that_is_none_of_keys_is_said_to_be_so(text: str) -> None:
    with pytest.raises(DecodeError):
        KeyHistory.restore({PART: text}, [])


@pytest.mark.parametrize(
    ("identity", "before", "key"),
    [
        ("f", ("id",), ("id",)),
        ("f", (), ()),
        ("f", ("gone",), None),
        ("f", None, None),
        ("n", None, None),
        ("d", None, NAMES),
        ("i", ("id",), NAMES),
    ],
)
def test_the_key_of_a_dropped_table_comes_from_the_stream_and_then_from_what_was_known(
    identity: str, before: tuple[str, ...] | None, key: tuple[str, ...] | None
) -> None:
    relation = Relation(1, "public", "orders", identity, COLUMNS)

    assert key_of(relation, None, NAMES, before) == key


def test_a_table_that_was_streamed_by_default_without_a_flag_had_no_key() -> None:
    columns = tuple(column._replace(is_identity=False) for column in COLUMNS)
    relation = Relation(1, "public", "orders", "d", columns)

    assert key_of(relation, None, NAMES, None) == ()
    assert key_of(relation, None, NAMES, ("code",)) == ("code",), "chosen in the file"
