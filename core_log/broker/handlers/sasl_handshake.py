"""SaslHandshake (key 17), versions 0 to 1: a client names the mechanism of its authentication.

Beside the mechanisms of the settings SCRAM-SHA-512 is offered, for other brokers and our own
commands. Deliberately not done: tokens without a request around them, which follow version 0 in
Kafka.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from headwater.core_log.security.login import Login
from headwater.core_log.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(SaslHandshakeRequest)
async def handle_sasl_handshake(
    broker: "Broker", request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    peer, offered = context.peer, broker.security.mechanisms
    if peer is None or not offered or not may_begin(broker, peer):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if request.mechanism not in offered:
        peer.close_when_sent()
        return SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
        )
    if peer.login is None:
        peer.login = Login()
        if peer.session is not None:
            peer.session.renewed_ms = broker.clock.monotonic_ms()
        else:  # a listener that also serves clients that prove nothing
            broker.await_login(peer)
    peer.login.begin(request.mechanism, broker.credentials.exchange(request.mechanism))
    return SaslHandshakeResponse(mechanisms=offered)


def may_begin(broker: "Broker", peer: Peer) -> bool:
    """Whether the client may authenticate now: for the first time, or again before its session
    ends."""
    if peer.login is not None or peer.principal == ANONYMOUS:
        return True
    return peer.session is not None and peer.session.may_renew(broker.clock.monotonic_ms())
