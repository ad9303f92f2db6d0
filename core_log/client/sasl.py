"""Says to a broker who we are, before anything else is asked of a new connection."""

import secrets
from collections.abc import Callable, Generator

from headwater.core_log.client.rpc import Rpc
from headwater.core_log.client.scram import HASHES, Scram
from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.core_log.protocol.messages.sasl_handshake import SaslHandshakeRequest

NONCE_BYTES = 24

Exchange = Generator[bytes, bytes, None]
"""What is said in turn, and what the broker answers each time; raises where it may not go on."""


async def authenticate(link: Rpc, security: SecuritySettings) -> None:
    """Raises LogRejected, in words without the password, when the broker does not let us in."""
    said = await link.ask(SaslHandshakeRequest(mechanism=security.mechanism))
    if said.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LogRejected(
            "the cluster wants to know no user at this address",
            hint="take SASL_ out of security.protocol, or name another listener of the cluster",
        )
    if said.error_code != ErrorCode.NONE:
        raise LogRejected(
            "the cluster does not offer the mechanism",
            hint="set security.mechanism to one that it offers",
            mechanism=security.mechanism,
            offered=", ".join(said.mechanisms),
        )
    exchange = exchange_of(security, nonce=lambda: secrets.token_urlsafe(NONCE_BYTES))
    step = next(exchange)
    while True:
        answer = await link.ask(SaslAuthenticateRequest(auth_bytes=step))
        if answer.error_code != ErrorCode.NONE:
            raise LogRejected(
                "the cluster refuses the user or the password",
                hint="correct security.user and security.password",
                user=security.user,
                mechanism=security.mechanism,
            )
        try:
            step = exchange.send(answer.auth_bytes)
        except StopIteration:
            return


def exchange_of(security: SecuritySettings, *, nonce: Callable[[], str]) -> Exchange:
    password = security.password.get_secret_value()
    if security.mechanism in HASHES:
        return by_scram(
            Scram(security.mechanism, user=security.user, password=password, nonce=nonce())
        )
    return by_password(security.user, password)


def by_scram(scram: Scram) -> Exchange:
    challenge = yield scram.first()
    verdict = yield scram.final(challenge)
    scram.check(verdict)


def by_password(user: str, password: str) -> Exchange:
    """PLAIN, of RFC 4616: whoever can read the line can read the password."""
    yield f"\0{user}\0{password}".encode()
