"""What the server says of changes arrives as columns, whole, in order and in its place."""

import struct

import numpy as np
import pytest

from headwater.connectors.postgres.wal.kernels import Kernels
from headwater.connectors.postgres.wal.wal_batch import (
    Relation,
    RowChanges,
    TruncateMessage,
    WalMessage,
)
from headwater.core_log.foundation.errors import DecodeError
from tests.connectors.postgres.wal import message_encoder
from tests.connectors.postgres.wal.decoder_input import (
    Change,
    Emptied,
    Inbox,
    Said,
    decoded,
    events_of,
    slices_of,
)
from tests.connectors.postgres.wal.message_encoder import KEPT, Transaction, logged, table

ORDERS, ITEMS = table(7, "id", "note"), table(8, "id", "what", "count")


def one(*messages: bytes, number: int = 1) -> Transaction:
    return Transaction(number, messages)


def known(*tables: Relation) -> list[bytes]:
    return [message_encoder.relation(each) for each in tables]


def test_rows_of_a_table_are_columns_of_text(kernels: Kernels) -> None:
    rows = [("1", "two"), ("-3", ""), ("4", None), ("5", "καλημέρα")]
    stream = one(*known(ORDERS), *(message_encoder.insert(7, each) for each in rows)).written()

    wal_batch = decoded(kernels, stream)

    [changes] = wal_batch.events
    assert isinstance(changes, RowChanges)
    assert changes.relation == ORDERS
    assert [each.to_pylist() for each in changes.rows] == [
        list(each) for each in zip(*rows, strict=True)
    ]
    assert (changes.old, changes.unchanged) == (None, {})


def test_every_change_knows_its_place_and_its_transaction(kernels: Kernels) -> None:
    first = one(
        *known(ORDERS), message_encoder.insert(7, ("1", "a")), message_encoder.insert(7, ("2", "b"))
    )
    second = one(message_encoder.delete(7, ("1", None)), number=2)

    wal_batch = decoded(kernels, first.written() + second.written())

    assert events_of([wal_batch]) == [
        Change("t7", "I", ("1", "a"), (), None, "", first.lsn(1), 1, 0),
        Change("t7", "I", ("2", "b"), (), None, "", first.lsn(2), 1, 1),
        Change("t7", "D", ("1", None), (), None, "K", second.lsn(0), 2, 0),
    ]
    transactions = wal_batch.transactions
    assert transactions.commit_lsns.tolist() == [first.commit_lsn, second.commit_lsn]
    assert transactions.end_lsns.tolist() == [first.end_lsn, second.end_lsn]
    assert transactions.committed_us.tolist() == [first.committed_us, second.committed_us]
    assert wal_batch.position == second.end_lsn


def test_untouched_large_values_are_marked_and_null(kernels: Kernels) -> None:
    updates = [
        message_encoder.update(7, ("1", KEPT)),
        message_encoder.update(7, ("2", None)),
        message_encoder.update(7, ("3", "x")),
    ]

    wal_batch = decoded(kernels, one(*known(ORDERS), *updates).written())

    [changes] = wal_batch.events
    assert isinstance(changes, RowChanges)
    assert changes.rows[1].to_pylist() == [None, None, "x"]
    assert {place: mask.tolist() for place, mask in changes.unchanged.items()} == {
        1: [True, False, False]
    }


def test_rows_before_an_update_stand_beside_those_after_it(kernels: Kernels) -> None:
    changes = [
        message_encoder.insert(7, ("1", "new")),
        message_encoder.update(7, ("2", "b"), key=("1", None)),
        message_encoder.update(7, ("2", "c")),
        message_encoder.update(7, ("2", KEPT), old=("2", "c")),
        message_encoder.delete(7, ("2", "c"), kind=b"O"),
    ]

    events = events_of([decoded(kernels, one(*known(ORDERS), *changes).written())])

    found = [
        (each.operation, each.values, each.kept, each.old, each.old_kind)
        for each in events
        if isinstance(each, Change)
    ]
    assert found == [
        ("I", ("1", "new"), (), None, ""),
        ("U", ("2", "b"), (), ("1", None), "K"),
        ("U", ("2", "c"), (), None, ""),
        ("U", ("2", None), (1,), ("2", "c"), "O"),
        ("D", ("2", "c"), (), None, "O"),
    ]


def test_a_table_that_changes_its_form_has_a_part_for_each(kernels: Kernels) -> None:
    wider = table(7, "id", "note", "more")
    messages = [
        *known(ORDERS, ITEMS),
        message_encoder.insert(7, ("1", "a")),
        message_encoder.insert(8, ("1", "b", "1")),
        *known(ORDERS),  # said again, and not changed
        message_encoder.insert(7, ("2", "a")),
        *known(wider),
        message_encoder.insert(7, ("3", "a", "x")),
    ]

    wal_batch = decoded(kernels, one(*messages).written())

    parts = [each for each in wal_batch.events if isinstance(each, RowChanges)]
    assert [(each.relation, len(each)) for each in parts] == [(ORDERS, 2), (ITEMS, 1), (wider, 1)]


def test_a_form_outlives_the_batch_that_told_it(kernels: Kernels) -> None:
    inbox = Inbox(kernels)
    first = one(*known(ORDERS), message_encoder.insert(7, ("1", "a")))
    second = one(message_encoder.insert(7, ("2", "b")), number=2)

    wal_batches = list(inbox.wal_batches([first.written(), second.written()]))

    assert [event.values for event in events_of(wal_batches) if isinstance(event, Change)] == [
        ("1", "a"),
        ("2", "b"),
    ]


def test_a_truncate_stands_between_what_was_before_and_after_it(kernels: Kernels) -> None:
    transaction = one(
        *known(ORDERS, ITEMS),
        message_encoder.insert(7, ("1", "a")),
        message_encoder.insert(8, ("1", "b", "2")),
        message_encoder.truncate(7, 8),
        message_encoder.insert(7, ("2", "a")),
    )

    wal_batch = decoded(kernels, transaction.written())

    events = events_of([wal_batch])
    assert [type(each) for each in events] == [Change, Change, Emptied, Change]
    assert events[2] == Emptied(("t7", "t8"), transaction.lsn(4), 1, 2)
    assert events[3] == Change("t7", "I", ("2", "a"), (), None, "", transaction.lsn(5), 1, 3)


def test_logical_messages_are_told_inside_and_outside_of_transactions(kernels: Kernels) -> None:
    inside = message_encoder.message("a", b"\x00x", lsn=5, is_transactional=True)
    outside = message_encoder.message("b", b"", lsn=77_000, is_transactional=False)
    transaction = one(*known(ORDERS), message_encoder.insert(7, ("1", "a")), inside)

    wal_batch = decoded(kernels, transaction.written() + logged(outside, 77_000))

    messages = [each for each in events_of([wal_batch]) if isinstance(each, Said)]
    assert messages == [Said("a", b"\x00x", 5, 1, 1), Said("b", b"", 77_000, None, 0)]
    assert wal_batch.position == 77_000


def test_types_and_origins_are_passed_over(kernels: Kernels) -> None:
    described = (
        b"Y" + struct.pack(">I", 99) + message_encoder.word("public") + message_encoder.word("mood")
    )
    origin = b"O" + struct.pack(">q", 5) + message_encoder.word("elsewhere")

    wal_batch = decoded(kernels, one(origin, described, *known(ORDERS)).written())

    assert wal_batch.events == ()
    assert wal_batch.transactions.xids.tolist() == [1]


def test_notices_in_the_middle_of_a_transaction_are_passed_over(kernels: Kernels) -> None:
    whole = one(*known(ORDERS), message_encoder.insert(7, ("1", "a"))).written()
    cut = len(logged(message_encoder.begin(1, 1)))
    noticed = (
        whole[:cut]
        + message_encoder.frame(b"N", b"SWARNING\0\0")
        + message_encoder.frame(b"S", b"a\0b\0")
    )

    wal_batch = decoded(kernels, noticed + whole[cut:])

    assert events_of([wal_batch]) == events_of([decoded(kernels, whole)])


def test_a_transaction_waits_for_its_commit(kernels: Kernels) -> None:
    stream = one(*known(ORDERS), message_encoder.insert(7, ("1", "a"))).written()
    inbox = Inbox(kernels)

    early = list(inbox.wal_batches(slices_of(stream[:-1], [30, 1, 40])))
    late = list(inbox.wal_batches([stream[-1:]]))

    assert early == []
    assert len(late) == 1


def test_a_transaction_that_goes_on_is_not_cut_while_others_are_whole(kernels: Kernels) -> None:
    first = one(*known(ORDERS), message_encoder.insert(7, ("1", "a")))
    second = one(message_encoder.insert(7, ("2", "b")), number=2).written()
    inbox = Inbox(kernels)

    wal_batches = list(
        inbox.wal_batches([first.written() + second[:-3], second[-3:]], may_cut=True)
    )

    assert [each.position for each in wal_batches] == [first.end_lsn, 20_000 + 9_008]


def test_a_transaction_may_be_cut_and_goes_on_counting(kernels: Kernels) -> None:
    transaction = one(
        *known(ORDERS), *(message_encoder.insert(7, (str(n), "a")) for n in range(50))
    )
    stream = transaction.written()

    wal_batches = list(Inbox(kernels).wal_batches(slices_of(stream, [500] * 4), may_cut=True))

    assert len(wal_batches) > 2
    assert {each.position for each in wal_batches[:-1]} == {None}
    assert wal_batches[-1].position == transaction.end_lsn
    assert events_of(wal_batches) == events_of([decoded(kernels, stream)])
    for each in wal_batches:
        assert each.transactions.xids.tolist() == [1]
        assert each.transactions.commit_lsns.tolist() == [transaction.commit_lsn]
    assert wal_batches[0].transactions.end_lsns.tolist() == [-1]


def test_a_keepalive_moves_the_position_only_between_transactions(kernels: Kernels) -> None:
    transaction = one(*known(ORDERS), message_encoder.insert(7, ("1", "a")))
    whole = transaction.written()
    cut = len(logged(message_encoder.begin(1, 1)))
    inside = whole[:cut] + message_encoder.keepalive(99_000_000) + whole[cut:]
    inbox = Inbox(kernels)

    wal_batches = list(
        inbox.wal_batches(
            [
                inside,
                message_encoder.keepalive(5),
                message_encoder.keepalive(50_000, wants_answer=True),
            ]
        )
    )

    ends = [(each.position, each.is_wanted) for each in wal_batches]
    assert ends == [(transaction.end_lsn, False), (transaction.end_lsn, False), (50_000, True)]


def test_the_servers_last_word_ends_the_stream_after_what_came_before(kernels: Kernels) -> None:
    whole = one(*known(ORDERS), message_encoder.insert(7, ("1", "a"))).written()
    inbox = Inbox(kernels)

    wal_batches = list(
        inbox.wal_batches([whole + message_encoder.frame(b"E", b"C57P01\0\0"), whole])
    )

    assert len(wal_batches) == 1
    assert inbox.decoder.ending is not None
    assert (inbox.decoder.ending.letter, inbox.decoder.ending.content) == ("E", b"C57P01\0\0")


def test_a_message_larger_than_the_buffer_says_how_much_room_it_needs(kernels: Kernels) -> None:
    stream = one(*known(ORDERS), message_encoder.insert(7, ("1", "a" * 5_000))).written()
    inbox = Inbox(kernels, 4_096)

    list(inbox.wal_batches([stream[:4_096]], may_cut=True))

    assert 5_000 < inbox.decoder.bytes_wanted < 5_100


def test_tables_without_columns_have_rows_all_the_same(kernels: Kernels) -> None:
    bare = table(9)

    wal_batch = decoded(
        kernels,
        one(*known(bare), message_encoder.insert(9, ()), message_encoder.insert(9, ())).written(),
    )

    [changes] = wal_batch.events
    assert isinstance(changes, RowChanges)
    assert (len(changes), changes.rows) == (2, ())


def test_a_batch_keeps_its_values_when_the_buffer_is_used_again(kernels: Kernels) -> None:
    inbox = Inbox(kernels)
    stream = one(
        *known(ORDERS),
        message_encoder.insert(7, ("1", "a")),
        message_encoder.update(7, ("1", "b"), old=("1", "a")),
    )

    [wal_batch] = inbox.wal_batches([stream.written()])
    before = events_of([wal_batch])
    inbox.buffer[:] = 0

    assert events_of([wal_batch]) == before


@pytest.mark.parametrize(
    ("problem", "messages"),
    [
        ("never described", [message_encoder.insert(5, ("1", "a"))]),
        ("another number of values", [message_encoder.insert(7, ("1",))]),
        ("another number of values", [message_encoder.insert(7, ("1", "2", "3"))]),
        ("does not end", [message_encoder.insert(7, ("1", "2")) + b"x"]),
        ("breaks its own format", [message_encoder.insert(7, ("1", "2"))[:-1]]),
        ("breaks its own format", [message_encoder.insert(7, ("1", "2"))[:-4]]),
        ("breaks its own format", [message_encoder.insert(7, ("1", "2")).replace(b"t", b"b")]),
        ("neither a new row", [message_encoder.insert(7, ("1", "2")).replace(b"N", b"K")]),
        ("neither a new row", [message_encoder.delete(7, ("1", "2"), kind=b"N")]),
        (
            "has no new row",
            [message_encoder.update(7, ("1", "2"), key=("1", None)).replace(b"N", b"O")],
        ),
        ("ends too early", [message_encoder.update(7, ("1", "2"), key=("1", None))[:-14]]),
        ("not asked for", [b"S" + bytes(40)]),
        ("not asked for", [b""]),
        ("too short", [b"I"]),
        ("follow one another", [message_encoder.begin(2, 5)]),
        ("ends too early", [message_encoder.truncate(7)[:-1]]),
        ("ends too early", [message_encoder.relation(ORDERS)[:-1]]),
        (
            "has no end",
            [message_encoder.message("abcd", b"", lsn=1, is_transactional=True)[:-6] + b"xxxxxx"],
        ),
        ("replica identity", [message_encoder.relation(table(3, "a", identity="x"))]),
    ],
)
def test_a_stream_that_breaks_its_format_is_refused(
    kernels: Kernels, problem: str, messages: list[bytes]
) -> None:
    stream = one(*known(ORDERS), *messages).written()

    with pytest.raises(DecodeError, match=problem):
        decoded(kernels, stream)


def test_text_that_is_not_utf8_is_marked_and_its_bytes_are_shown(kernels: Kernels) -> None:
    half, other_half = "é".encode()[:1], "é".encode()[1:]
    messages = [
        message_encoder.insert(7, ("1", half)),
        message_encoder.insert(7, (other_half, "b")),
    ]
    messages += [message_encoder.update(7, ("é", None), old=("é", b"\xff"))]
    fitting = [message_encoder.insert(7, ("1", "é"))]

    wal_batch = decoded(kernels, one(*known(ORDERS), *messages).written())
    other = decoded(kernels, one(*known(ORDERS), *fitting).written())

    found = [each for each in events_of([wal_batch]) if isinstance(each, Change)]
    assert [each.values for each in found] == [("1", "\0<c3>"), ("\0<a9>", "b"), ("é", None)]
    assert found[-1].old == ("é", "\0<ff>")
    parts = [each for each in (*wal_batch.events, *other.events) if isinstance(each, RowChanges)]
    assert [each.has_unreadable for each in parts] == [True, False]


@pytest.mark.parametrize(
    "stream",
    [
        logged(message_encoder.commit(5, 6)),
        logged(message_encoder.insert(7, ("1", "a")))
        + logged(message_encoder.begin(1, 1))
        + logged(message_encoder.commit(1, 2)),
        logged(message_encoder.begin(1, 5))
        + logged(message_encoder.commit(5, 6))
        + logged(message_encoder.commit(5, 6)),
        logged(message_encoder.message("audit", b"x", lsn=5, is_transactional=True)),
        b"d\0\0\0\3kk",
        b"d\x7f\xff\xff\xff",
    ],
)
def test_a_stream_out_of_step_is_refused(kernels: Kernels, stream: bytes) -> None:
    inbox = Inbox(kernels)

    with pytest.raises(DecodeError):
        list(inbox.wal_batches([stream]))


def test_truncates_of_nothing_known_are_refused(kernels: Kernels) -> None:
    with pytest.raises(DecodeError, match="never described"):
        decoded(kernels, one(message_encoder.truncate(4)).written())


def test_the_parts_of_a_batch_are_of_the_types_that_are_promised(kernels: Kernels) -> None:
    said = message_encoder.message("a", b"b", lsn=5, is_transactional=True)
    transaction = one(
        *known(ORDERS), message_encoder.insert(7, ("1", "a")), message_encoder.truncate(7), said
    )

    wal_batch = decoded(kernels, transaction.written())

    assert [type(each) for each in wal_batch.events] == [RowChanges, TruncateMessage, WalMessage]
    changes = wal_batch.events[0]
    assert isinstance(changes, RowChanges)
    assert changes.operations.dtype == changes.old_kinds.dtype == np.uint8
    assert changes.lsns.dtype == changes.transactions.dtype == changes.indexes.dtype == np.int64
    assert wal_batch.transactions.end_lsns.dtype == np.int64
