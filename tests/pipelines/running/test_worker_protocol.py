"""Orders and words between an owner and its workers arrive as they were said."""

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.reports import RowsMoved, TaskState
from headwater.pipelines.running.supervisor import TaskEnded, TaskId
from headwater.pipelines.running.worker_protocol import (
    LeaveTask,
    Order,
    RenewLease,
    StartTask,
    StopTask,
    TaskGone,
    Word,
    decode_order,
    decode_word,
    encode_order,
    encode_word,
)

TASK = TaskId("shop", "sql")
ORDERS: list[Order] = [
    StartTask(TASK, b'{"url":"\n\x00\xff"}', ("127.0.0.1:1", "kafka-2:9092"), until_end=True),
    StartTask(TASK, b"", (), until_end=False),
    StopTask(TASK),
    RenewLease(6_667),
    LeaveTask(),
]
WORDS: list[Word] = [
    TaskEnded(TASK, TaskState.QUARANTINED, "no such table\n  hint: make it", "SinkRejected"),
    TaskGone(TASK),
    RowsMoved("shop", "sql", "orders", 1, 2, 3, 4),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_is_one_line_and_comes_back_as_it_was(order: Order) -> None:
    line = encode_order(order)

    assert line.count(b"\n") == 1
    assert decode_order(line) == order


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_a_word_is_one_line_and_comes_back_as_it_was(word: Word) -> None:
    line = encode_word(word)

    assert line.count(b"\n") == 1
    assert decode_word(line) == word


def test_an_unknown_order_is_named_without_its_content() -> None:
    with pytest.raises(DecodeError, match="keys=\\['password'\\]") as raised:
        decode_order(b'{"password":"hunter2"}')

    assert "hunter2" not in str(raised.value)
