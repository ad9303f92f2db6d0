"""SaslAuthenticate (key 36), versions 0 to 2: one step of a client's authentication.

Version 1: the time after which the client must authenticate again, as the same user by the same
mechanism (KIP-368). A refusal is answered a little later, as in Kafka, and then the connection is
closed. Deliberately not done: nothing.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.core_log.security.login import Exchange, Login, LoginSession
from headwater.core_log.security.principal import ANONYMOUS, CLUSTER, LOCAL, Principal
from headwater.core_log.security.sasl_mechanisms import AuthenticationFailed

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
REFUSAL_S = 0.1
"""Kafka's connection.failed.authentication.delay.ms: guessing takes longer, and one cannot see how
far a guess has come."""
NAME_SHOWN_MAX = 80
UNENDING = frozenset({CLUSTER, LOCAL})
"""Principals that need not authenticate again: other brokers, and our own commands."""


@handles(SaslAuthenticateRequest)
async def handle_sasl_authenticate(
    broker: "Broker", request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    peer = context.peer
    if peer is None or peer.login is None or peer.login.exchange is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    login, exchange = peer.login, peer.login.exchange
    refusal: AuthenticationFailed | None = None
    try:
        check_mechanism(peer, login)
        token = await step(broker, peer, exchange, bytes(request.auth_bytes))
    except AuthenticationFailed as error:
        token, refusal = b"", error
    if not (broker.is_open or exchange.user == CLUSTER.name):
        peer.close()  # which users there are is not known yet; the client comes again
        return SaslAuthenticateResponse()
    if refusal is not None:
        return await refuse(broker, peer, login, str(refusal))
    if not exchange.is_done:
        return SaslAuthenticateResponse(error_message=None, auth_bytes=token)
    principal = Principal(exchange.user)
    if peer.session is not None and principal != peer.principal:
        was, now = (f"{each.type}.{each.name}" for each in (peer.principal, principal))
        why = f"Cannot change principals during re-authentication from {was}: {now}"
        return await refuse(broker, peer, login, why)
    if peer.session is None and not broker.has_room_for(principal):
        return await refuse(broker, peer, login, "The user has its maximum of connections")
    lifetime_ms = 0 if principal in UNENDING else broker.settings.security.session_ms_max
    session = None
    if lifetime_ms:
        end_ms = broker.clock.monotonic_ms() + lifetime_ms
        began_ms = None if peer.session is None else peer.session.renewed_ms
        session = LoginSession(login.mechanism, end_ms, began_ms)
    peer.admit(principal, session)
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )


def check_mechanism(peer: Peer, login: Login) -> None:
    """Raises `AuthenticationFailed` if a client authenticates again in another way."""
    session = peer.session
    if session is not None and session.mechanism != login.mechanism:
        raise AuthenticationFailed(
            f"SASL mechanism '{login.mechanism}' requested by client is not supported for "
            f"re-authentication of mechanism '{session.mechanism}'"
        )


async def step(broker: "Broker", peer: Peer, exchange: Exchange, token: bytes) -> bytes:
    if not exchange.is_slow:
        return exchange.step(token)
    async with broker.hashing:
        if peer.is_closed:  # it had to wait for too long
            raise AuthenticationFailed
        return await asyncio.to_thread(exchange.step, token)


async def refuse(
    broker: "Broker", peer: Peer, login: Login, message: str
) -> SaslAuthenticateResponse:
    user = login.exchange.user[:NAME_SHOWN_MAX] if login.exchange is not None else ""
    host, what = peer.client_host, {"user": user, "mechanism": login.mechanism}
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    if broker.audit.note_refusal("SaslAuthenticate", ANONYMOUS, host, code.name, what):
        logger.warning("authentication failed: host=%s user=%r", host, user)
    await asyncio.sleep(REFUSAL_S)
    peer.close_when_sent()
    return SaslAuthenticateResponse(
        error_code=code,
        error_message=message
        or "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {login.mechanism}",
    )
