"""The exchange is the one of the RFC, and ends at once where a server breaks it."""

import pytest

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.links.sasl import Scram

# The exchange that RFC 7677 shows.
USER, PASSWORD, NONCE = "user", "pencil", "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun(**changes: str) -> Scram:
    chosen = {"user": USER, "password": PASSWORD, "nonce": NONCE, **changes}
    return Scram("SCRAM-SHA-256", **chosen)


def test_the_exchange_is_that_of_the_rfc() -> None:
    scram = begun()

    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(CHALLENGE) == FINAL
    scram.check(VERDICT)


def test_a_name_may_hold_the_signs_of_the_exchange() -> None:
    assert begun(user="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=other-error",
        b"\xff",
        CHALLENGE.replace(b"r=rOpr", b"r=xOpr"),
        CHALLENGE.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        CHALLENGE.replace(b"i=4096", b"i=4095"),
        CHALLENGE.replace(b"i=4096", b"i=1000000000"),
        CHALLENGE.replace(b"i=4096", b"i=many"),
        CHALLENGE.replace(b"s=W22Z", b"s=*"),
    ],
)
def test_a_challenge_that_breaks_the_rules_gets_no_proof(challenge: bytes) -> None:
    with pytest.raises(LogRejected) as refused:
        begun().final(challenge)

    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("verdict", [b"", b"v=", b"e=invalid-proof", VERDICT[:-5] + b"AAAA="])
def test_a_server_without_the_password_is_not_trusted(verdict: bytes) -> None:
    scram = begun()
    scram.final(CHALLENGE)

    with pytest.raises(LogRejected):
        scram.check(verdict)


def test_a_verdict_before_the_proof_counts_for_nothing() -> None:
    with pytest.raises(LogRejected):
        begun().check(b"v=")
