"""Authentication by SASL: SCRAM (RFC 5802), in which both ends prove that they know the password,
and PLAIN."""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.core_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.core_log.security.sasl_mechanisms import HASHES, salt_password

ROUNDS_MIN, ROUNDS_MAX = 4_096, 1_000_000
"""Fewer rounds would help to guess the password; more would block this process."""
NO_CHANNEL = "n,,"


class Scram:
    """One SCRAM exchange; its methods are called in this order."""

    def __init__(self, mechanism: str, *, user: str, password: str, nonce: str) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        self._hash = HASHES[mechanism]
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"{NO_CHANNEL}{self._first}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Returns the proof for the server's salt and number of rounds."""
        said = parts_of(challenge)
        try:
            nonce, salt, rounds = said["r"], b64decode(said["s"], validate=True), int(said["i"])
        except (KeyError, ValueError):
            raise broken_exchange_error() from None
        is_ours = nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)
        if not (is_ours and ROUNDS_MIN <= rounds <= ROUNDS_MAX):
            raise broken_exchange_error()
        salted = salt_password(self._mechanism, self._password, salt, rounds)
        bare = f"c={b64encode(NO_CHANNEL.encode()).decode()},r={nonce}"
        everything = b",".join([self._first.encode(), challenge, bare.encode()])
        key = self._digest_with_key(salted, b"Client Key")
        signature = self._digest_with_key(hashlib.new(self._hash, key).digest(), everything)
        proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
        self._expected = self._digest_with_key(
            self._digest_with_key(salted, b"Server Key"), everything
        )
        return f"{bare},p={b64encode(proof).decode()}".encode()

    def check(self, verdict: bytes) -> None:
        """Raises unless the server knows the password as well."""
        try:
            shown = b64decode(parts_of(verdict).get("v", ""), validate=True)
        except ValueError:
            raise broken_exchange_error() from None
        if not self._expected or not hmac.compare_digest(shown, self._expected):
            raise LogRejected(
                "the cluster has not proved that it knows the password",
                hint="check that it is the right cluster; nothing more is sent to it",
            )

    def _digest_with_key(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def parts_of(message: bytes) -> dict[str, str]:
    """Parses `r=...,s=...`."""
    try:
        pairs = (part.partition("=") for part in message.decode().split(","))
        return {letter: value for letter, _, value in pairs}
    except UnicodeDecodeError:
        raise broken_exchange_error() from None


def broken_exchange_error() -> LogRejected:
    return LogRejected("the cluster's SCRAM message is invalid", hint="")


NONCE_BYTES = 24

Exchange = Generator[bytes, bytes, None]
"""Yields messages to send, and gets the broker's answers; raises if the exchange fails."""


async def authenticate(link: Rpc, security: SecuritySettings) -> int:
    """Authenticates; returns after how many milliseconds it must be done again, 0 for never. Raises
    LogRejected, without the password in its text, if the broker refuses."""
    said = await link.ask(SaslHandshakeRequest(mechanism=security.mechanism))
    if said.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LogRejected(
            "the cluster does not authenticate users at this address",
            hint="remove SASL_ from security.protocol, or name another listener of the cluster",
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
            return answer.session_lifetime_ms


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
    """PLAIN of RFC 4616: everyone who can read the connection can read the password."""
    yield f"\0{user}\0{password}".encode()
