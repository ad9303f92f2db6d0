"""SaslAuthenticate (key 36), versions 0 to 2: one step of a client's authentication.

A refusal is answered a little later, as in Kafka, and then the connection is closed. Deliberately
not done: the end of a session, after which clients authenticate again (KIP-368).
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
from headwater.core_log.security.login import Exchange, Login
from headwater.core_log.security.principal import ANONYMOUS, CLUSTER, Principal
from headwater.core_log.security.scram import AuthenticationFailed

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
REFUSAL_S = 0.1
"""Kafka's connection.failed.authentication.delay.ms: guessing takes longer, and one cannot see how
far a guess has come."""
NAME_SHOWN_MAX = 80


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
        token = await step(broker, peer, exchange, bytes(request.auth_bytes))
    except AuthenticationFailed as error:
        token, refusal = b"", error
    if not (broker.is_open or exchange.user == CLUSTER.name):
        peer.close()  # which users there are is not known yet; the client comes again
        return SaslAuthenticateResponse()
    if refusal is not None:
        return await refuse(broker, peer, login, str(refusal))
    if exchange.is_done:
        peer.admit(Principal(exchange.user))
    return SaslAuthenticateResponse(error_message=None, auth_bytes=token)


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
