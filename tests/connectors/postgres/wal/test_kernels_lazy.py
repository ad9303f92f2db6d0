"""Nobody waits for the compiler, and small pipelines never load it."""

import pytest

from headwater.connectors.postgres.snapshot.copy import decode_tuples, tuples_of_messages
from headwater.connectors.postgres.wal.kernels import LazyKernels, kernels_of
from tests.connectors.postgres.wal import message_encoder
from tests.connectors.postgres.wal.decoder_input import Inbox, events_of
from tests.connectors.postgres.wal.message_encoder import Transaction, table

ROW = b"\0\1\0\0\0\1a"
ROWS = tuples_of_messages([ROW, ROW])


@pytest.mark.slow
def test_the_compiler_is_sent_for_once_there_is_enough_to_do() -> None:
    pytest.importorskip("numba")
    kernels = LazyKernels(worth_bytes=3 * ROWS.size)

    before = decode_tuples(ROWS, [True], kernels)
    kernels.wait()
    was_warm = kernels.is_warm
    for _ in range(2):
        decode_tuples(ROWS, [True], kernels)
    kernels.wait()

    assert (was_warm, kernels.is_warm) == (False, True)
    assert decode_tuples(ROWS, [True], kernels) == before


def test_a_stream_may_warm_up_in_its_middle() -> None:
    pytest.importorskip("numba")
    kernels = LazyKernels(worth_bytes=1)
    transactions = [
        Transaction(
            number,
            [
                message_encoder.relation(table(7, "a", "b")),
                message_encoder.insert(7, (str(number), "é")),
            ],
        )
        for number in range(1, 4)
    ]
    inbox, told = Inbox(kernels), []

    for each in transactions:
        told += list(inbox.wal_batches([each.written()]))
        kernels.wait()

    plain = Inbox(kernels_of("python"))
    assert events_of(told) == events_of(plain.wal_batches(each.written() for each in transactions))
    assert kernels.is_warm
