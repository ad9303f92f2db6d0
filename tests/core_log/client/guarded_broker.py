"""A listener with TLS and SASL before a broker of ours, which has neither."""

import asyncio
import hashlib
import hmac
import ssl
from asyncio import StreamReader, StreamWriter
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import (
    encode_response,
    read_request_header,
    read_response_header,
)
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headwater.core_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.core_log.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headwater.core_log.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.core_log.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

USER, PASSWORD = "shop", "a password, with=signs"
FRAME_BYTES_MAX = 100 << 20
SALT, ROUNDS = b"salt of the test", 4096
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

Step = Generator[bytes, bytes, None]
"""Gets what the client says, gives what is answered; raises ValueError for somebody else."""


class Guard:
    """One listener; `mechanisms` is empty where anybody may come in."""

    def __init__(self, backend: tuple[str, int], mechanisms: tuple[str, ...]) -> None:
        self.backend, self.mechanisms = backend, mechanisms
        self.address = ("", 0)
        self.admitted = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            behind, front = await asyncio.open_connection(*self.backend)
            try:
                await self._relay(reader, writer, behind, front)
            finally:
                front.close()
        writer.close()

    async def _relay(
        self, reader: StreamReader, writer: StreamWriter, behind: StreamReader, front: StreamWriter
    ) -> None:
        is_known, step = not self.mechanisms, None
        while True:
            frame = await received(reader)
            header = read_request_header(memoryview(frame))
            answer: Any
            if header.api_key == SaslHandshakeRequest.api_key:
                asked = decode_request(SaslHandshakeRequest, frame)
                step = self._begun(asked.mechanism)
                code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if step is None else ErrorCode.NONE
                if not self.mechanisms:
                    code = ErrorCode.ILLEGAL_SASL_STATE
                answer = SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)
            elif header.api_key == SaslAuthenticateRequest.api_key:
                assert step is not None, "a handshake comes first"
                try:
                    told = step.send(decode_request(SaslAuthenticateRequest, frame).auth_bytes)
                    is_known = told[:2] in (b"", b"v=")  # the last word of either mechanism
                    answer = SaslAuthenticateResponse(auth_bytes=told)
                except ValueError:
                    answer = SaslAuthenticateResponse(
                        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED
                    )
                self.admitted += is_known
            else:
                if not is_known and header.api_key != ApiVersionsRequest.api_key:
                    return  # as Kafka does
                front.write(len(frame).to_bytes(4, "big") + frame)
                reply = await received(behind)
                changed = self._changed(header.api_key, header.api_version, reply)
                if changed is None:
                    writer.write(len(reply).to_bytes(4, "big") + reply)
                    continue
                answer = changed
            writer.write(
                encode_response(answer, header.api_key, header.api_version, header.correlation_id)
            )

    def _changed(self, api_key: int, version: int, reply: bytes) -> Any:
        """Answers in which the broker says what it serves, and where."""
        host, port = self.address
        if api_key == ApiVersionsRequest.api_key:
            said: Any = decode_reply(ApiVersionsResponse, api_key, version, reply)
            more = [
                ApiVersion(
                    api_key=each.api_key, min_version=each.versions[0], max_version=each.versions[1]
                )
                for each in (SaslHandshakeRequest, SaslAuthenticateRequest)
            ]
            return replace(said, api_keys=[*said.api_keys, *more])
        if api_key == MetadataRequest.api_key:
            said = decode_reply(MetadataResponse, api_key, version, reply)
            brokers = [replace(each, host=host, port=port) for each in said.brokers]
            return replace(said, brokers=brokers)
        if api_key == FindCoordinatorRequest.api_key:
            said = decode_reply(FindCoordinatorResponse, api_key, version, reply)
            return replace(said, host=host, port=port)
        return None

    def _begun(self, mechanism: str) -> Step | None:
        if mechanism not in self.mechanisms:
            return None
        step = plain() if mechanism == "PLAIN" else scram(HASHES[mechanism])
        next(step)
        return step


def plain() -> Step:
    if (yield b"") != f"\0{USER}\0{PASSWORD}".encode():
        raise ValueError
    yield b""


def scram(kind: str) -> Step:
    """The server's side, as RFC 5802 has it."""
    first = (yield b"").removeprefix(b"n,,")
    nonce = first.split(b"r=")[1] + b"of-the-server"
    challenge = b"r=%s,s=%s,i=%d" % (nonce, b64encode(SALT), ROUNDS)
    bare, _, proof = (yield challenge).partition(b",p=")
    salted = hashlib.pbkdf2_hmac(kind, PASSWORD.encode(), SALT, ROUNDS)
    stored = hashlib.new(kind, hmac.digest(salted, b"Client Key", kind)).digest()
    everything = first + b"," + challenge + b"," + bare
    signature = hmac.digest(stored, everything, kind)
    key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
    if hashlib.new(kind, key).digest() != stored or bare != b"c=biws,r=" + nonce:
        raise ValueError
    own = hmac.digest(hmac.digest(salted, b"Server Key", kind), everything, kind)
    yield b"v=" + b64encode(own)


async def received(reader: StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > FRAME_BYTES_MAX:
        raise ConnectionError("this is no frame of Kafka's")
    return await reader.readexactly(size)


def decode_request(kind: Any, frame: bytes) -> Any:
    header = read_request_header(memoryview(frame))
    return decode(kind, memoryview(frame), header.api_version, header.body_position)


def decode_reply(kind: Any, api_key: int, version: int, frame: bytes) -> Any:
    _, position = read_response_header(memoryview(frame), api_key, version)
    return decode(kind, memoryview(frame), version, position)


@asynccontextmanager
async def guarded(
    backend: tuple[str, int],
    *mechanisms: str,
    tls: ssl.SSLContext | None = None,
    on_trouble: Callable[[dict[str, Any]], None] = lambda _: None,
) -> AsyncIterator[Guard]:
    """A handshake that fails is part of some tests, and no news."""
    guard = Guard(backend, mechanisms)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: on_trouble(context))
    server = await asyncio.start_server(guard.serve, "127.0.0.1", 0, ssl=tls)
    guard.address = server.sockets[0].getsockname()[:2]
    try:
        yield guard
    finally:
        server.close()
        loop.set_exception_handler(None)
