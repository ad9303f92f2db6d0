"""Passwords of SASL: SCRAM (RFC 5802) with what is kept of each, PLAIN (RFC 4616), which only TLS
hides, and the secret with which the nodes of a cluster log in to each other."""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ROUNDS_MIN, ROUNDS_MAX = 4_096, 16_384
"""Kafka's limits for the rounds of a user."""
DEFAULT_ROUNDS = 8_192

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<channel>[A-Za-z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9/+=]+)"
)
BY_TOKEN = ",tokenauth=true"
"""Kafka's extension for delegation tokens, which this log does not have."""
TOKENS = 3
SIZE_MAX = 1024
"""Limit of a message: names and passwords have at most 255 bytes."""
SECRET_LENGTH_MIN, SECRETS_MAX = 32, 2
"""Limits of a cluster secret; a file has two while it is changed."""


class AuthenticationFailed(Exception):
    """The client has not proved who it is. The text is for the client: it says nothing about
    users."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored form of one password: enough to check it, too little to log in with."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    rounds: int


def hash_password(mechanism: str, password: str, salt: bytes, rounds: int) -> bytes:
    """Takes milliseconds, so that guessing takes long."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, rounds)


salt_password = lru_cache(maxsize=64)(hash_password)
"""The same for who logs in again and again with one password: clients and other nodes."""


def credential_of(
    mechanism: str, salted_password: bytes, *, salt: bytes, rounds: int
) -> ScramCredential:
    client_key = hmac.digest(salted_password, b"Client Key", HASHES[mechanism])
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(HASHES[mechanism], client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", HASHES[mechanism]),
        rounds=rounds,
    )


def decoy(mechanism: str, user: str, key: bytes) -> ScramCredential:
    """Returns the credential of a user that does not exist. No password fits it, but until the end
    it looks, and takes time, like any other: always the same one for a name."""
    digest = hmac.digest(key, f"{mechanism}\0{user}".encode(), "sha512")
    salt = _in_base_36(int.from_bytes(digest[:20]) >> 30).encode()
    size = hashlib.new(HASHES[mechanism]).digest_size
    stored, server = (hmac.digest(digest, each, "sha512")[:size] for each in (b"1", b"2"))
    return ScramCredential(salt, stored, server, DEFAULT_ROUNDS)


def new_salt(bits: Callable[[int], int]) -> bytes:
    """Returns a salt as Kafka's tools make it, so that a decoy's is like it."""
    return _in_base_36(bits(130)).encode()


def _in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


class ScramServer:
    """One exchange with a client; `step` is called with its first and its final message."""

    is_slow = False

    def __init__(
        self, mechanism: str, *, find: Callable[[str], Sequence[ScramCredential]], nonce: str
    ) -> None:
        """`find` returns a user's credentials, of one salt and number of rounds; there may be two
        while a secret is changed. For unknown users it returns a decoy."""
        self._hash, self._find, self._nonce = HASHES[mechanism], find, nonce
        self._credentials: Sequence[ScramCredential] = ()
        self._header = self._bare = self._first = b""
        self.user = ""
        self.is_done = False

    def step(self, message: bytes) -> bytes:
        assert not self.is_done, "an exchange ends once"
        return self._take_final(message) if self._first else self._take_first(message)

    def _take_first(self, message: bytes) -> bytes:
        said = _matched(_FIRST, message)
        self.user = said["name"].replace("=2C", ",").replace("=3D", "=")
        asked_for = (said["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if asked_for and asked_for != self.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if BY_TOKEN in said["extensions"]:
            raise AuthenticationFailed
        self._credentials = self._find(self.user)
        any_of_them = self._credentials[0]
        self._header, self._bare = said["header"].encode(), said["bare"].encode()
        self._nonce = said["nonce"] + self._nonce
        salt = b64encode(any_of_them.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={any_of_them.rounds}".encode()
        return self._first

    def _take_final(self, message: bytes) -> bytes:
        said = _matched(_FINAL, message)
        is_same = hmac.compare_digest(said["nonce"].encode(), self._nonce.encode())
        if not is_same or _decoded(said["channel"]) != self._header:
            raise AuthenticationFailed
        exchange = b",".join([self._bare, self._first, said["bare"].encode()])
        proof, signature = _decoded(said["proof"]), b""
        for each in self._credentials:
            if self._proves(proof, each.stored_key, exchange):
                signature = hmac.digest(each.server_key, exchange, self._hash)
        if not signature:
            raise AuthenticationFailed
        self.is_done, self._credentials = True, ()
        return b"v=" + b64encode(signature)

    def _proves(self, proof: bytes, stored_key: bytes, exchange: bytes) -> bool:
        signature = hmac.digest(stored_key, exchange, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored_key)


def _matched(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationFailed
    return found


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationFailed from None


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


def read_secret_file(
    path: Path, *, read: Callable[[Path], bytes] = Path.read_bytes
) -> tuple[str, ...]:
    """Raises `ConfigError` if the file cannot be used."""
    try:
        content = read(path)
    except OSError as error:
        raise ConfigError(
            "the cluster secret cannot be read",
            hint="`headwater cluster secret > cluster.secret` makes one",
            file=str(path),
            reason=error.strerror,
        ) from None
    return read_cluster_secret(content, str(path))


def read_cluster_secret(content: bytes, path: str) -> tuple[str, ...]:
    """Returns the secret; two, the new one first, while it is being changed."""
    try:
        lines = tuple(line.strip() for line in content.decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        lines = ()
    if not 1 <= len(lines) <= SECRETS_MAX or min(map(len, lines)) < SECRET_LENGTH_MIN:
        raise ConfigError(
            "the file does not hold a cluster secret",
            hint="`headwater cluster secret > cluster.secret` makes one; the file has one line, "
            "or two while the secret is changed",
            file=path,
        )
    return lines


def derive(secret: str, purpose: str) -> str:
    """Returns another secret, from which nobody learns this one."""
    return hmac.digest(secret.encode(), purpose.encode(), "sha256").hex()
