"""Orders and words between an owner and its workers arrive as they were said."""

import pytest

from core_log.foundation.errors import DecodeError
from pipelines.reports import Moved, State
from pipelines.running.supervisor import Ended, UnitId
from pipelines.running.worker_protocol import (
    Gone,
    Leave,
    Order,
    Start,
    Stop,
    Word,
    decode_order,
    decode_word,
    encode_order,
    encode_word,
)

UNIT = UnitId("shop", "sql")
ORDERS: list[Order] = [
    Start(UNIT, b'{"url":"\n\x00\xff"}', ("127.0.0.1:1", "kafka-2:9092"), until_end=True),
    Start(UNIT, b"", (), until_end=False),
    Stop(UNIT),
    Leave(),
]
WORDS: list[Word] = [
    Ended(UNIT, State.QUARANTINED, "no such table\n  hint: make it", "SinkRejected"),
    Gone(UNIT),
    Moved("shop", "sql", "orders", 1, 2, 3, 4),
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
