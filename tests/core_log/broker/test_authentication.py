"""Who has not proved who it is gets nothing, costs little, and keeps nobody waiting."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from pydantic import SecretStr

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.settings import security_at
from headwater.core_log.foundation.endpoint import FILE_NAME, decode_endpoint
from headwater.core_log.foundation.errors import ConfigError, LogRejected, LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings, SecuritySettings, TopicSettings
from headwater.core_log.links import tls as links_tls
from headwater.core_log.links.connection import connect
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.message import Request
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.core_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.budget import PATIENCE_S
from tests.certificates import Authority

Start = Callable[..., Awaitable[RunningBroker]]
SASL = {"sasl": "SCRAM-SHA-512"}
PASSWORD = "canary-of-a-password"


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    running: list[RunningBroker] = []

    async def begin(security: dict[str, Any], **further: Any) -> RunningBroker:
        settings = {"data": tmp_path / "data", "listen": "127.0.0.1:0", "security": security}
        broker = await RunningBroker.start(BrokerSettings.model_validate(settings | further))
        running.append(broker)
        return broker

    yield begin
    for each in running:
        await each.stop()


def client(broker: RunningBroker, security: SecuritySettings) -> KafkaLog:
    return KafkaLog(
        KafkaSettings(
            bootstrap=[broker.endpoint],
            security=security,
            retry_for_ms=0,
            first_answer_ms_max=30_000,
        )
    )


def own_security(broker: RunningBroker) -> SecuritySettings:
    """As our commands find it."""
    file = broker.broker.settings.data / FILE_NAME
    return security_at(decode_endpoint(file.read_bytes()))


def user(password: str, **further: Any) -> SecuritySettings:
    settings = {"protocol": "SASL_PLAINTEXT", "user": "alice", "password": SecretStr(password)}
    return SecuritySettings.model_validate(settings | further)


async def add_alice(broker: RunningBroker, mechanism: str = "SCRAM-SHA-512") -> None:
    log = client(broker, own_security(broker))
    await log.users.set_password("alice", PASSWORD, mechanism)
    await log.close()


async def topics_seen(broker: RunningBroker, security: SecuritySettings) -> int:
    log = client(broker, security)
    try:
        return len(await log.topics.all())
    finally:
        await log.close()


async def link_to(broker: RunningBroker) -> Rpc:
    host, port = broker.server.address
    channel = await connect(host, port, response_bytes_max=1 << 20)
    link = Rpc(channel, KafkaSettings(bootstrap=[broker.endpoint]))
    await link.agree()
    return link


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_user_of_the_log_is_let_in(start: Start) -> None:
    broker = await start(SASL)
    await add_alice(broker)

    assert await topics_seen(broker, user(PASSWORD)) == 0


@pytest.mark.parametrize(
    "security",
    [
        user("wrong"),
        user(PASSWORD, user="nobody"),
        user(PASSWORD, user="__cluster"),
        user(PASSWORD, user="__local"),
        user(PASSWORD, user="ANONYMOUS"),
        user(PASSWORD, mechanism="SCRAM-SHA-256"),
        user(PASSWORD, mechanism="PLAIN"),
    ],
    ids=lambda each: f"{each.user}-{each.mechanism}",
)
async def test_nobody_else_is(
    start: Start, security: SecuritySettings, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(SASL)
    await add_alice(broker)
    caplog.set_level(logging.DEBUG)

    with pytest.raises(LogRejected) as refused:
        await topics_seen(broker, security)

    assert PASSWORD not in str(refused.value) + caplog.text


async def test_a_removed_user_is_not_let_in_again(start: Start) -> None:
    broker = await start(SASL)
    await add_alice(broker)
    log = client(broker, own_security(broker))
    await log.users.remove("alice")
    await log.close()

    with pytest.raises(LogRejected):
        await topics_seen(broker, user(PASSWORD))


@pytest.mark.parametrize("request_", [MetadataRequest(), SaslAuthenticateRequest()])
async def test_a_client_that_proves_nothing_is_cut_off(
    start: Start, request_: Request[Any]
) -> None:
    broker = await start(SASL)
    link = await link_to(broker)

    with pytest.raises(Exception, match="closed the connection"):
        await link.ask(request_)


async def test_versions_are_told_once_and_without_what_is_for_brokers(start: Start) -> None:
    broker = await start(SASL)
    link = await link_to(broker)

    assert not {52, 53, 54, 56, 58, 59, 62, 63, 67, 82} & link.agreement.ranges.keys()
    assert {17, 36, 50, 51} <= link.agreement.ranges.keys()
    with pytest.raises(Exception, match="closed the connection"):
        await link.ask(ApiVersionsRequest())


async def test_an_unknown_mechanism_is_answered_with_those_there_are(start: Start) -> None:
    broker = await start({"sasl": "SCRAM-SHA-256"})
    link = await link_to(broker)

    answer = await link.ask(SaslHandshakeRequest(mechanism="GSSAPI"))

    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    await until(lambda: not link.is_open)


async def test_a_listener_without_authentication_says_so_as_kafka_does(start: Start) -> None:
    broker = await start({})
    link = await link_to(broker)

    answer = await link.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))

    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.slow
async def test_a_known_client_does_not_authenticate_again(start: Start) -> None:
    broker = await start(SASL)
    await add_alice(broker)
    log = client(broker, user(PASSWORD))
    await log.topics.all()
    [node] = await log._cluster.nodes()

    handshake = await node.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
    step = await node.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))

    assert handshake.error_code == step.error_code == ErrorCode.ILLEGAL_SASL_STATE
    await log.close()


@pytest.mark.slow
async def test_an_answer_says_nothing_of_which_users_there_are(start: Start) -> None:
    broker = await start(SASL)
    await add_alice(broker)
    shapes = []
    for name in ("alice", "nobody"):
        link = await link_to(broker)
        await link.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
        first = await link.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={name},r=abc".encode()))
        nonce = first.auth_bytes.split(b",")[0].decode()
        final = f"c=biws,{nonce},p={'A' * 86}==".encode()
        last = await link.ask(SaslAuthenticateRequest(auth_bytes=final))
        rounds = first.auth_bytes.split(b",")[2]
        shapes.append((first.error_code, rounds, last.error_code, last.error_message))
        await until(lambda link=link: not link.is_open)  # type: ignore[misc]

    assert shapes[0] == shapes[1]


async def test_a_large_request_is_refused_before_authentication(start: Start) -> None:
    broker = await start(SASL)
    host, port = broker.server.address
    reader, writer = await asyncio.open_connection(host, port)

    writer.write(pack(">i", 1 << 20) + b"\0" * 100)

    assert await reader.read() == b""
    writer.close()


@pytest.mark.slow
async def test_a_slow_client_is_cut_off_and_others_do_not_wait(start: Start) -> None:
    broker = await start(SASL, authentication_wait_ms_max=3_000)
    await add_alice(broker)
    host, port = broker.server.address
    idle = [await asyncio.open_connection(host, port) for _ in range(20)]

    assert await topics_seen(broker, user(PASSWORD)) == 0

    assert [await reader.read() for reader, _ in idle] == [b""] * 20
    await until(lambda: broker.server.connection_count == 0)
    for _, writer in idle:
        writer.close()


async def test_a_client_that_leaves_leaves_nothing_behind(start: Start) -> None:
    broker = await start(SASL)
    host, port = broker.server.address
    for _ in range(50):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()

    await until(lambda: broker.server.connection_count == 0)

    assert not broker.server._unknown
    assert not broker.server._addresses


@pytest.mark.slow
async def test_the_oldest_unknown_client_gives_way_at_the_limit(start: Start) -> None:
    broker = await start(SASL, connections_max=3)
    await add_alice(broker)
    await until(lambda: broker.server.connection_count == 0)
    host, port = broker.server.address
    idle = [await asyncio.open_connection(host, port) for _ in range(5)]

    assert await topics_seen(broker, user(PASSWORD)) == 0

    assert await idle[0][0].read() == b""
    assert broker.server.connection_count <= 3
    for _, writer in idle:
        writer.close()


async def test_an_address_has_a_limit_of_its_own(start: Start) -> None:
    broker = await start({}, connections_per_address_max=2)
    host, port = broker.server.address
    held = [await asyncio.open_connection(host, port) for _ in range(2)]
    await until(lambda: broker.server.connection_count == 2)

    reader, refused = await asyncio.open_connection(host, port)
    assert await reader.read() == b""

    held[0][1].close()
    await until(lambda: broker.server.connection_count == 1)
    assert await topics_seen(broker, SecuritySettings()) == 0
    for writer in (refused, held[1][1]):
        writer.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(authority: Authority, name: str = "broker", **further: Any) -> dict[str, Any]:
    file = authority.issue(name)
    return {"certificate_file": file, "key_file": file, "ca_file": authority.file, **further}


async def test_records_pass_by_tls_in_both_directions(start: Start, authority: Authority) -> None:
    broker = await start({"tls": tls(authority), **SASL, "super_users": "User:alice"})
    await add_alice(broker)
    log = client(broker, user(PASSWORD, protocol="SASL_SSL", ca_file=authority.file))
    await log.ensure_topic(TopicSettings(name="t"))
    value = bytes(range(256)) * 3000
    partition = TopicPartition("t", 0)
    for _ in range(8):
        record = PlainRecord(None, value, timestamp_ms=1)
        await log.append(partition, Batch(bytearray(encode_batch([record])), 1))

    found: list[bytes | None] = []
    while len(found) < 8:
        [part] = await log.fetch(
            {partition: len(found)}, limit=FetchLimit(), isolation=Isolation.COMMITTED
        )
        batches = iterate_batches(bytes(part.data))
        found += [each.value for one in batches for each in decode_batch(one)[1]]

    assert found == [value] * 8
    await log.close()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_password_is_taken_inside_tls(
    start: Start, authority: Authority, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    broker = await start({"tls": tls(authority), "sasl": f"{mechanism}, SCRAM-SHA-256"})
    await add_alice(broker, "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism)
    secured = {"protocol": "SASL_SSL", "ca_file": authority.file, "mechanism": mechanism}

    assert await topics_seen(broker, user(PASSWORD, **secured)) == 0
    with pytest.raises(LogRejected):
        await topics_seen(broker, user("wrong", **secured))
    assert PASSWORD not in caplog.text


async def test_a_certificate_is_proof_enough(start: Start, authority: Authority) -> None:
    broker = await start({"tls": tls(authority, client_ca_file=authority.file)})
    file = authority.issue("alice")
    shown = SecuritySettings(
        protocol="SSL", ca_file=authority.file, certificate_file=file, key_file=file
    )

    log = client(broker, shown)
    await log.topics.all()

    principals = [str(each.principal) for each in broker.server._connections]
    assert principals == ["User:CN=alice"]
    await log.close()


async def test_another_authoritys_certificate_is_none(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    broker = await start({"tls": tls(authority, client_ca_file=authority.file)})
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger").issue("alice")

    for file in (None, stranger):
        shown = SecuritySettings(
            protocol="SSL", ca_file=authority.file, certificate_file=file, key_file=file
        )
        with pytest.raises((LogUnavailable, LogRejected)):
            await topics_seen(broker, shown)


async def test_a_plain_client_at_a_tls_port_is_refused_and_the_other_way_round(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start({"tls": tls(authority)})

    with pytest.raises(LogUnavailable):
        await topics_seen(broker, SecuritySettings())
    assert "closed a connection of 127.0.0.1: TLS failed" in caplog.text


async def test_a_tls_client_at_a_plain_port_is_told_so_in_the_log(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start({})

    with pytest.raises(LogUnavailable):
        await topics_seen(broker, SecuritySettings(protocol="SSL", ca_file=authority.file))
    assert "the client begins TLS, and the listener has none" in caplog.text


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_of_tls_are_not_spoken(start: Start, authority: Authority) -> None:
    broker = await start({"tls": tls(authority)})
    context = ssl.create_default_context(cafile=str(authority.file))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    host, port = broker.server.address

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, port, ssl=context)


@pytest.mark.slow
async def test_slow_handshakes_hold_up_nobody_and_end(start: Start, authority: Authority) -> None:
    broker = await start(
        {"tls": tls(authority), "sasl": "SCRAM-SHA-512"}, authentication_wait_ms_max=3_000
    )
    await add_alice(broker)
    host, port = broker.server.address
    silent = [await asyncio.open_connection(host, port) for _ in range(20)]
    for _, writer in silent:
        writer.write(b"\x16\x03\x01")

    secured = user(PASSWORD, protocol="SASL_SSL", ca_file=authority.file)
    assert await topics_seen(broker, secured) == 0

    assert [await reader.read() for reader, _ in silent] == [b""] * 20
    await until(lambda: broker.server.connection_count == 0)
    for _, writer in silent:
        writer.close()


async def test_a_stop_does_not_wait_for_handshakes(start: Start, authority: Authority) -> None:
    broker = await start({"tls": tls(authority)})
    host, port = broker.server.address
    peers = [socket.create_connection((host, port)) for _ in range(3)]
    await until(lambda: broker.server.connection_count == 3)

    async with asyncio.timeout(PATIENCE_S):
        await broker.server.drain(2 * PATIENCE_S)

    for each in peers:
        each.close()


async def test_a_changed_certificate_is_read_without_a_restart(
    start: Start, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tls(authority)
    broker = await start({"tls": chosen})
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    newer = SecuritySettings(protocol="SSL", ca_file=other.file)
    with pytest.raises(LogRejected):
        await topics_seen(broker, newer)

    monkeypatch.setattr(links_tls, "LOOK_S", 0.0)

    await asyncio.to_thread(chosen["certificate_file"].write_bytes, b"half written")
    assert await topics_seen(broker, SecuritySettings(protocol="SSL", ca_file=authority.file)) == 0
    await asyncio.to_thread(other.issue("new").replace, chosen["certificate_file"])

    assert await topics_seen(broker, newer) == 0


async def test_certificates_that_cannot_be_used_stop_the_start(
    start: Start, authority: Authority
) -> None:
    file = authority.issue("broker", password="hidden")

    with pytest.raises(ConfigError, match="certificates of the listener cannot be used"):
        await start({"tls": {"certificate_file": file, "key_file": file}})


async def test_the_secret_of_the_directory_is_its_owners(start: Start) -> None:
    broker = await start(SASL)
    data = broker.broker.settings.data

    modes = {each: (data / each).stat().st_mode & 0o777 for each in (FILE_NAME, "local.secret")}

    assert modes == {FILE_NAME: 0o600, "local.secret": 0o600}
    assert "secret" not in repr(decode_endpoint((data / FILE_NAME).read_bytes()))
