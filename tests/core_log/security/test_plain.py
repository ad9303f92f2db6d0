"""PLAIN takes the three parts of RFC 4616, and believes the password only."""

import pytest

from headwater.core_log.security.sasl_mechanisms import (
    AuthenticationFailed,
    PlainServer,
    ScramCredential,
)
from tests.core_log.security.test_sasl_mechanisms import credential


def find(user: str) -> tuple[str, ScramCredential]:
    return "SCRAM-SHA-256", credential("pencil")


@pytest.mark.parametrize("message", [b"\0user\0pencil", b"user\0user\0pencil"])
def test_the_right_password_is_believed(message: bytes) -> None:
    server = PlainServer(find=find)

    assert server.step(message) == b""
    assert (server.user, server.is_done) == ("user", True)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"\0user", "expected 3 tokens, got 2"),
        (b"\0user\0pencil\0", "expected 3 tokens, got 4"),
        (b"\0\0pencil", "username not specified"),
        (b"\0user\0", "password not specified"),
        (b"\0user\0pen", "Invalid username or password"),
        (b"other\0user\0pencil", "authorization id that is different"),
        (b"\0user\0" + b"p" * 100_000, "Invalid username or password"),
        (b"\xff\0\xff\0\xff", "Invalid username or password"),
    ],
)
def test_anything_else_is_refused_in_kafkas_words(message: bytes, words: str) -> None:
    server = PlainServer(find=find)

    with pytest.raises(AuthenticationFailed, match=words):
        server.step(message)

    assert not server.is_done
