"""Principals travel in Kafka's own bytes, and names in certificates are written as Java writes
them."""

import contextlib
from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.security.principal import (
    ANONYMOUS,
    Principal,
    decode_principal,
    encode_principal,
    parse_principal,
    subject_of,
)

ALICE = b"\0\0\5User\6alice\0\0"
"""Version, compact strings, not authenticated by a token, no tagged fields."""
KEY = ec.generate_private_key(ec.SECP256R1())
CN, ORG, OU, C = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)


def test_a_principal_travels_in_the_bytes_of_kafkas_default_principal_data() -> None:
    assert encode_principal(Principal("alice")) == ALICE
    assert decode_principal(ALICE) == Principal("alice")


def test_an_envelope_of_an_earlier_version_speaks_for_nobody() -> None:
    assert decode_principal(None) == ANONYMOUS


@pytest.mark.parametrize("size", range(len(ALICE)))
def test_a_cut_principal_is_not_read(size: int) -> None:
    with pytest.raises(DecodeError):
        decode_principal(ALICE[:size])


def test_a_principal_without_a_name_is_not_read() -> None:
    with pytest.raises(DecodeError, match="no name"):
        decode_principal(b"\0\0\5User\1\0\0")


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    certificate = parse_principal("User:CN=a,O=b:c")

    assert certificate == Principal("CN=a,O=b:c")
    assert str(certificate) == "User:CN=a,O=b:c"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_other_texts_are_not_principals(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_principal(text)


def certificate(*parts: list[x509.NameAttribute[str]]) -> bytes:
    name = x509.Name([x509.RelativeDistinguishedName(part) for part in parts])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2024, 1, 1))
        .not_valid_after(datetime(2040, 1, 1))
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def one(*pairs: tuple[x509.ObjectIdentifier, str]) -> bytes:
    return certificate(*([x509.NameAttribute(kind, text)] for kind, text in pairs))


BMP = x509.NameAttribute(CN, "bmp", _type=_ASN1Type.BMPString)
T61 = x509.NameAttribute(ORG, "t61", _type=_ASN1Type.T61String)


@pytest.mark.parametrize(
    ("der", "name"),
    [
        (one((CN, "alice")), "CN=alice"),
        (
            one(
                (C, "DE"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
                (NameOID.LOCALITY_NAME, "München"),
                (ORG, 'A, B + "C"; <D>\\=E'),
                (OU, "x"),
                (OU, "y"),
                (CN, "node-1.example"),
            ),
            "CN=node-1.example,OU=y,OU=x,"
            'O=A\\, B \\+ \\"C\\"\\; \\<D\\>\\\\\\=E,L=München,ST=Bayern,C=DE',
        ),
        (
            one((NameOID.EMAIL_ADDRESS, "a@b.c"), (CN, " #lead and trail ")),
            "CN=\\ \\#lead and trail\\ ,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            one(
                (CN, "#x"),
                (NameOID.USER_ID, "u1"),
                (NameOID.DOMAIN_COMPONENT, "com"),
                (NameOID.STREET_ADDRESS, "S 1"),
            ),
            "STREET=S 1,DC=com,UID=u1,CN=\\#x",
        ),
        (
            certificate(
                [x509.NameAttribute(CN, "m"), x509.NameAttribute(ORG, "n")],
                [x509.NameAttribute(C, "US")],
            ),
            "C=US,CN=m+O=n",
        ),
        (
            one(
                (NameOID.SERIAL_NUMBER, "42"),
                (NameOID.TITLE, "Dr"),
                (x509.ObjectIdentifier("1.2.3.4.55555.1"), "odd"),
                (CN, "日本  x"),
            ),
            "CN=日本  x,1.2.3.4.55555.1=#0c036f6464,2.5.4.12=#0c024472,2.5.4.5=#13023432",
        ),
        (certificate([BMP], [T61]), "O=t61,CN=\\00b\\00m\\00p"),
        (one((CN, " ")), "CN=\\ "),
        (one((CN, "a\0b\nc")), "CN=a\\00b\nc"),
        (one((CN, "  two  ")), "CN=\\ \\ two\\ \\ "),
    ],
)
def test_a_name_is_written_as_java_writes_it(der: bytes, name: str) -> None:
    assert subject_of(der) == name


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_broken_certificate_has_no_name_or_another_one(place: int, byte: int) -> None:
    broken = bytearray(one((C, "DE"), (CN, "alice")))
    broken[place % len(broken)] = byte

    with contextlib.suppress(DecodeError):
        assert isinstance(subject_of(bytes(broken)), str)


def test_a_certificate_without_a_subject_is_nobodys() -> None:
    with pytest.raises(DecodeError, match="no subject"):
        subject_of(certificate())
