"""Answers reach whoever asked, however the bytes arrive; nothing a peer sends is trusted."""

import asyncio
import socket
from collections.abc import AsyncIterator
from struct import pack

import pytest

from headwater.core_log.links.connection import INBOX_BYTES, BrokerConnection, ConnectionLost

BYTES_MAX = 4 * INBOX_BYTES

Ends = tuple[BrokerConnection, socket.socket]
"""A connection, and the socket on which the test plays the broker."""


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    connection = BrokerConnection(ours, response_bytes_max=BYTES_MAX)
    yield connection, theirs
    connection.close()
    theirs.close()


def answer_frame(correlation_id: int, body: bytes) -> bytes:
    return pack(">ii", 4 + len(body), correlation_id) + body


async def send(peer: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(peer, data)


async def test_an_answer_comes_without_its_length(ends: Ends) -> None:
    connection, peer = ends
    asked = connection.ask(bytearray(b"request"), 7)

    await send(peer, answer_frame(7, b"body"))

    assert bytes(await asked) == pack(">i", 7) + b"body"
    assert await asyncio.get_running_loop().sock_recv(peer, 100) == b"request"


@pytest.mark.parametrize("piece", [1, 3, 8, 100, 1 << 20])
async def test_answers_survive_being_cut_anywhere(ends: Ends, piece: int) -> None:
    connection, peer = ends
    sizes = (0, 1, 50, INBOX_BYTES // 200)
    asked = [connection.ask(bytearray(b"x"), number) for number in range(len(sizes))]
    frames = b"".join(answer_frame(number, b"z" * size) for number, size in enumerate(sizes))

    for start in range(0, len(frames), piece):
        await send(peer, frames[start : start + piece])
        await asyncio.sleep(0)

    assert [len(await answer) - 4 for answer in asked] == list(sizes)


@pytest.mark.parametrize("size", [INBOX_BYTES - 8, INBOX_BYTES, INBOX_BYTES + 1, BYTES_MAX - 4])
async def test_large_and_small_answers_follow_each_other(ends: Ends, size: int) -> None:
    connection, peer = ends
    bodies = [b"small", bytes(size), b"small again", bytes(range(256)) * (size // 256)]
    asked = [connection.ask(bytearray(b"x"), number) for number in range(4)]

    await send(peer, b"".join(answer_frame(n, body) for n, body in enumerate(bodies)))

    for answer, body in zip(asked, bodies, strict=True):
        assert (await answer)[4:] == body


async def test_an_answer_nobody_waits_for_any_more_is_passed_over(
    ends: Ends,
) -> None:
    connection, peer = ends
    abandoned, wanted = connection.ask(bytearray(b"x"), 1), connection.ask(bytearray(b"x"), 2)
    abandoned.cancel()

    await send(peer, answer_frame(1, b"late") + answer_frame(2, b"wanted"))

    assert bytes((await wanted)[4:]) == b"wanted"
    assert connection.in_flight == 0


async def test_all_that_was_asked_fails_when_the_peer_goes_away(
    ends: Ends,
) -> None:
    connection, peer = ends
    asked = [connection.ask(bytearray(b"x"), number) for number in range(3)]

    peer.close()

    for answer in asked:
        with pytest.raises(ConnectionLost):
            await answer
    assert not connection.is_open
    with pytest.raises(ConnectionLost):
        await connection.ask(bytearray(b"x"), 4)


@pytest.mark.parametrize("length", [-1, 0, 3, BYTES_MAX + 1, 0x7FFFFFFF])
async def test_an_answer_of_an_absurd_length_ends_the_connection(ends: Ends, length: int) -> None:
    """Before anything is allocated for it."""
    connection, peer = ends
    asked = connection.ask(bytearray(b"x"), 1)

    await send(peer, pack(">ii", length, 1))

    with pytest.raises(ConnectionLost, match="claims"):
        await asked


async def test_an_answer_to_another_question_ends_the_connection(
    ends: Ends,
) -> None:
    connection, peer = ends
    asked = connection.ask(bytearray(b"x"), 1)

    await send(peer, answer_frame(2, b"?"))

    with pytest.raises(ConnectionLost, match="without a request"):
        await asked


async def test_requests_larger_than_the_sockets_buffer_go_out_whole_and_in_order(
    ends: Ends,
) -> None:
    connection, peer = ends
    requests = [bytes([number]) * 1_000_000 for number in range(4)]
    answers = [
        connection.ask(bytearray(request), number) for number, request in enumerate(requests)
    ]

    received = bytearray()
    while len(received) < 4_000_000:
        received += await asyncio.get_running_loop().sock_recv(peer, 1 << 20)

    assert received == b"".join(requests)
    assert not any(answer.done() for answer in answers)
