"""Our error codes carry Kafka's numbers, and say as kafka-python does whether to try again."""

import struct

from kafka import errors

from headwater.core_log.protocol.error_codes import ErrorCode

KAFKA_PYTHON_DIFFERS = {
    2,  # CORRUPT_MESSAGE, which Kafka itself lets a client send or fetch again
}


def test_codes_run_without_a_gap_from_minus_one() -> None:
    assert sorted(ErrorCode) == [*range(-1, 134)]


def test_retriable_codes_are_those_of_kafka_python() -> None:
    theirs = {
        each.errno: each.retriable
        for each in vars(errors).values()
        if hasattr(each, "errno") and hasattr(each, "retriable")
    }
    ours = {int(code): code.is_retriable for code in ErrorCode if code in theirs}
    assert {
        code for code, is_retriable in ours.items() if is_retriable != theirs[code]
    } == KAFKA_PYTHON_DIFFERS


def test_every_code_says_what_it_means() -> None:
    meanings = [code.meaning for code in ErrorCode]
    assert all(meaning and meaning[-1] != "." for meaning in meanings)
    assert len({*meanings}) == len(meanings)


def test_a_code_of_a_newer_broker_reads_as_unknown() -> None:
    assert ErrorCode(999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_is_packed_as_its_number() -> None:
    assert struct.pack(">h", ErrorCode.NOT_COORDINATOR) == b"\0\x10"
