"""PLAIN (RFC 4616): the client sends its password, which only TLS hides from the network."""

import hmac
from collections.abc import Callable

from headwater.core_log.security.scram import (
    AuthenticationFailed,
    ScramCredential,
    credential_of,
    hash_password,
)

TOKENS = 3
SIZE_MAX = 1024
"""Of a message: names and passwords have at most 255 bytes."""


class PlainServer:
    """One exchange with a client. Its only step takes milliseconds, as the password is hashed."""

    is_slow = True

    def __init__(self, *, find: Callable[[str], tuple[str, ScramCredential]]) -> None:
        """`find` returns a user's credential and its mechanism, or a decoy."""
        self._find, self.user, self.is_done = find, "", False

    def step(self, message: bytes) -> bytes:
        tokens = message[:SIZE_MAX].decode(errors="replace").split("\0", TOKENS)
        if len(tokens) != TOKENS:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}"
            )
        asked_for, self.user, password = tokens
        if not self.user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        mechanism, known = self._find(self.user)
        salted = hash_password(mechanism, password, known.salt, known.rounds)
        given = credential_of(mechanism, salted, salt=known.salt, rounds=known.rounds)
        if not hmac.compare_digest(given.stored_key, known.stored_key):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if asked_for and asked_for != self.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.is_done = True
        return b""
