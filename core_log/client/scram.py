"""SCRAM as RFC 5802 has it: both ends prove that they know the password, and neither tells it."""

import hashlib
import hmac
from base64 import b64decode, b64encode

from headwater.core_log.foundation.errors import LogRejected

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ROUNDS_MIN, ROUNDS_MAX = 4_096, 1_000_000
"""Who asks for fewer wants to guess the password, who asks for more wants us to stand still."""
NO_CHANNEL = "n,,"


class Scram:
    """One exchange, in the order of its methods."""

    def __init__(self, mechanism: str, *, user: str, password: str, nonce: str) -> None:
        self._hash, self._password, self._nonce = HASHES[mechanism], password, nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"{NO_CHANNEL}{self._first}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof, for a server that has said its salt and its rounds."""
        said = parts_of(challenge)
        try:
            nonce, salt, rounds = said["r"], b64decode(said["s"], validate=True), int(said["i"])
        except (KeyError, ValueError):
            raise broken_exchange_error() from None
        is_ours = nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)
        if not (is_ours and ROUNDS_MIN <= rounds <= ROUNDS_MAX):
            raise broken_exchange_error()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, rounds)
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
                "the cluster does not know the password that it asks for",
                hint="is it the right cluster? nothing more is said to this one",
            )

    def _digest_with_key(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def parts_of(message: bytes) -> dict[str, str]:
    """`r=...,s=...` by its letters."""
    try:
        pairs = (part.partition("=") for part in message.decode().split(","))
        return {letter: value for letter, _, value in pairs}
    except UnicodeDecodeError:
        raise broken_exchange_error() from None


def broken_exchange_error() -> LogRejected:
    return LogRejected("the cluster's part of the SCRAM exchange breaks its rules", hint="")
