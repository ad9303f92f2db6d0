"""Nobody waits for the compiler, and small pipelines never load it."""

import pytest

from connectors.postgres.wal.choosing import kernels_of
from connectors.postgres.wal.copy_text import decode_copy
from connectors.postgres.wal.warming import WarmingKernels
from tests.connectors.postgres.wal import wire
from tests.connectors.postgres.wal.reading import Inbox, events_of
from tests.connectors.postgres.wal.wire import Transaction, table

CONTENT = b"1\t\\N\n2\tb\n"


def test_the_compiler_is_sent_for_once_there_is_enough_to_do() -> None:
    pytest.importorskip("numba")
    kernels = WarmingKernels(worth_bytes=3 * len(CONTENT))

    before = decode_copy(CONTENT, 2, kernels)
    kernels.wait()
    was_warm = kernels.is_warm
    for _ in range(2):
        decode_copy(CONTENT, 2, kernels)
    kernels.wait()

    assert (was_warm, kernels.is_warm) == (False, True)
    assert decode_copy(CONTENT, 2, kernels) == before


def test_a_stream_may_warm_up_in_its_middle() -> None:
    pytest.importorskip("numba")
    kernels = WarmingKernels(worth_bytes=1)
    transactions = [
        Transaction(number, [wire.relation(table(7, "a", "b")), wire.insert(7, (str(number), "é"))])
        for number in range(1, 4)
    ]
    inbox, told = Inbox(kernels), []

    for each in transactions:
        told += list(inbox.bursts([each.written()]))
        kernels.wait()

    plain = Inbox(kernels_of("python"))
    assert events_of(told) == events_of(plain.bursts(each.written() for each in transactions))
    assert kernels.is_warm
