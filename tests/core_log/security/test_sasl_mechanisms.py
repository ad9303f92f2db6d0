"""The server side of SCRAM is that of the RFC, believes proofs only, and tells nothing of users."""

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.links.sasl import Scram
from headwater.core_log.security.sasl_mechanisms import (
    DEFAULT_ROUNDS,
    HASHES,
    AuthenticationFailed,
    ScramCredential,
    ScramServer,
    credential_of,
    decoy,
    hash_password,
    new_salt,
)

# The exchange that RFC 7677 shows.
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE, SALT = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str, mechanism: str = "SCRAM-SHA-256") -> ScramCredential:
    salted = hash_password(mechanism, password, SALT, 4_096)
    return credential_of(mechanism, salted, salt=SALT, rounds=4_096)


def server(*known: ScramCredential) -> ScramServer:
    return ScramServer("SCRAM-SHA-256", find=lambda _: known, nonce=NONCE)


def test_the_exchange_is_that_of_the_rfc() -> None:
    begun = server(credential("pencil"))

    assert begun.step(FIRST) == CHALLENGE
    assert begun.step(FINAL) == VERDICT
    assert (begun.user, begun.is_done) == ("user", True)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["a", "a=b,c", "=2C", "müller", "a b"])
def test_our_client_and_our_server_believe_each_other(mechanism: str, user: str) -> None:
    known = credential("pencil", mechanism)
    ours = ScramServer(mechanism, find=lambda _: (known,), nonce=NONCE)
    client = Scram(mechanism, user=user, password="pencil", nonce="abc")

    client.check(ours.step(client.final(ours.step(client.first()))))

    assert (ours.user, ours.is_done) == (user, True)


@pytest.mark.parametrize("password", ["old", "new"])
def test_either_of_two_secrets_is_enough(password: str) -> None:
    ours = server(credential("new"), credential("old"))
    client = Scram("SCRAM-SHA-256", user="u", password=password, nonce="abc")

    client.check(ours.step(client.final(ours.step(client.first()))))

    assert ours.is_done


def test_a_wrong_password_fails_at_the_end_only() -> None:
    ours = server(credential("pencil"))
    client = Scram("SCRAM-SHA-256", user="user", password="pen", nonce="abc")
    proof = client.final(ours.step(client.first()))

    with pytest.raises(AuthenticationFailed):
        ours.step(proof)

    assert not ours.is_done


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user",
        b"n,,m=1,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=\xff",
        b"n,,n=user,r=a b",
    ],
)
def test_a_first_message_that_breaks_the_rules_ends_it(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server(credential("pencil")).step(first)


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"r=rOpr", b"r=xOpr"),
        FINAL.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"p=dHz", b"p=eHz"),
        FINAL[:-4],
        FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p="),
        FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=AAAA"),
        b"",
        FIRST,
    ],
)
def test_a_final_message_that_breaks_the_rules_ends_it(final: bytes) -> None:
    begun = server(credential("pencil"))
    begun.step(FIRST)

    with pytest.raises(AuthenticationFailed):
        begun.step(final)

    assert not begun.is_done


@given(st.lists(st.binary(max_size=200) | st.sampled_from([FIRST, FINAL]), max_size=3))
def test_noise_is_never_believed(messages: list[bytes]) -> None:
    begun = server(decoy("SCRAM-SHA-256", "user", b"key"))

    for each in messages:
        try:
            begun.step(each)
        except AuthenticationFailed:
            break

    assert not begun.is_done


def test_a_user_that_does_not_exist_looks_like_any_other() -> None:
    salt = new_salt(lambda bits: (1 << bits) - 1)
    one, again, other = (
        decoy("SCRAM-SHA-512", user, b"key") for user in ("nobody", "nobody", "somebody")
    )

    assert one == again
    assert one.salt != other.salt
    assert one.salt.isalnum() and abs(len(one.salt) - len(salt)) <= 2
    assert one.rounds == DEFAULT_ROUNDS
    assert len(one.stored_key) == 64


def test_keys_of_a_password_are_not_shown() -> None:
    assert repr(credential("pencil")) == "ScramCredential(rounds=4096)"
