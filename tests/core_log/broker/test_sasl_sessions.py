"""A client authenticates again before its session ends (KIP-368), and has few connections."""

import asyncio

import pytest

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.links.sasl import authenticate, exchange_of
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.core_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.core_log.security.principal import Principal
from tests.budget import PATIENCE_S
from tests.core_log.broker.test_authentication import (
    PASSWORD,
    SASL,
    Start,
    add_alice,
    client,
    link_to,
    own_security,
    topics_seen,
    until,
    user,
)
from tests.core_log.broker.test_authentication import start as start


def connections_of_alice(broker: RunningBroker) -> list[Peer]:
    return [each for each in broker.server._connections if each.principal.name == "alice"]


async def log_in(link: Rpc, security: SecuritySettings) -> int:
    return await authenticate(link, security)


@pytest.mark.slow
async def test_a_client_authenticates_again_before_its_session_ends(start: Start) -> None:
    broker = await start(SASL | {"session_ms_max": 1_500})
    await add_alice(broker)
    log = client(broker, user(PASSWORD))
    await log.topics.all()
    [known] = connections_of_alice(broker)
    first = known.session

    async with asyncio.timeout(PATIENCE_S):
        while known.session is first or known.session is None:
            await log.topics.all()

    assert not known.is_closed
    assert connections_of_alice(broker) == [known]
    assert known.session.renewed_ms is not None
    await log.close()


async def test_a_client_that_does_not_authenticate_again_is_cut_off(start: Start) -> None:
    broker = await start(SASL | {"session_ms_max": 50})
    await add_alice(broker)
    link = await link_to(broker)
    lifetime_ms = await log_in(link, user(PASSWORD))
    [known] = connections_of_alice(broker)
    assert known.session is not None
    end_ms = known.session.end_ms
    await until(lambda: broker.broker.clock.monotonic_ms() > end_ms)

    with pytest.raises(ConnectionLost):
        await link.ask(MetadataRequest())

    assert lifetime_ms == 50


async def test_our_own_commands_need_not_authenticate_again(start: Start) -> None:
    broker = await start(SASL | {"session_ms_max": 50})
    link = await link_to(broker)

    assert await log_in(link, own_security(broker)) == 0
    link.close()


@pytest.mark.slow
async def test_a_session_goes_on_as_the_same_user_by_the_same_mechanism(start: Start) -> None:
    """The words are Kafka's."""
    broker = await start({"sasl": "SCRAM-SHA-512,SCRAM-SHA-256", "session_ms_max": 60_000})
    log = client(broker, own_security(broker))
    for name, mechanism in (("alice", "512"), ("alice", "256"), ("bob", "512")):
        await log.users.set_password(name, PASSWORD, f"SCRAM-SHA-{mechanism}")
    await log.close()
    told = []

    for changed in ({"user": "bob"}, {"mechanism": "SCRAM-SHA-256"}):
        link = await link_to(broker)
        await log_in(link, user(PASSWORD))
        exchange = exchange_of(user(PASSWORD, **changed), nonce=lambda: "nonce")
        mechanism = changed.get("mechanism", "SCRAM-SHA-512")
        agreed = await link.ask(SaslHandshakeRequest(mechanism=mechanism))
        step, said = next(exchange), None
        while said is None or not said.error_code:
            said = await link.ask(SaslAuthenticateRequest(auth_bytes=step))
            if not said.error_code:
                step = exchange.send(said.auth_bytes)
        told.append((agreed.error_code, said.error_code, said.error_message))
        link.close()

    failed = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told == [
        (0, failed, "Cannot change principals during re-authentication from User.alice: User.bob"),
        (
            0,
            failed,
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for "
            "re-authentication of mechanism 'SCRAM-SHA-512'",
        ),
    ]


async def test_a_client_authenticates_again_once_a_second_at_most(start: Start) -> None:
    broker = await start(SASL | {"session_ms_max": 60_000})
    await add_alice(broker)
    link = await link_to(broker)
    await log_in(link, user(PASSWORD))

    await log_in(link, user(PASSWORD))
    again = await link.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))

    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await link.ask(MetadataRequest())).topics is not None
    link.close()


@pytest.mark.slow
async def test_a_removed_user_is_cut_off_at_the_end_of_its_session(start: Start) -> None:
    broker = await start(SASL | {"session_ms_max": 1_200})
    await add_alice(broker)
    log = client(broker, user(PASSWORD))
    await log.topics.all()
    own = client(broker, own_security(broker))
    await own.users.remove("alice")

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(LogRejected, match="refuses the user"):
            while True:
                await log.topics.all()

    await own.close()
    await log.close()


async def test_a_user_has_as_many_connections_as_it_may_have(start: Start) -> None:
    broker = await start(SASL, connections_per_principal_max=2)
    await add_alice(broker)
    links = [await link_to(broker) for _ in range(3)]
    for each in links[:2]:
        await log_in(each, user(PASSWORD))

    with pytest.raises(LogRejected):
        await log_in(links[2], user(PASSWORD))

    links[0].close()
    await until(lambda: broker.broker.has_room_for(Principal("alice")))
    assert await topics_seen(broker, user(PASSWORD)) == 0
    assert await topics_seen(broker, own_security(broker)) == 0
    links[1].close()
