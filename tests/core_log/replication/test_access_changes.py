"""Users are changed by Kafka's rules, outlive snapshots, and no text shows what is kept of them."""

import pytest

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.access_changes import (
    CredentialRemoval,
    NewCredential,
    alter_credentials,
    credential_in,
    rounds_of,
)
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import decode_record, encode_record
from headwater.core_log.security.sasl_mechanisms import credential_of

SALT, SALTED = b"salt", b"\x01" * 32
CODES = dict[str, ErrorCode]


def added(user: str, mechanism: int = 1, rounds: int = 8_192) -> NewCredential:
    return NewCredential(user, mechanism, rounds, SALT, SALTED)


def change(image: MetadataImage, *wanted: CredentialRemoval | NewCredential) -> CODES:
    decision = alter_credentials(
        image,
        [each for each in wanted if isinstance(each, CredentialRemoval)],
        [each for each in wanted if isinstance(each, NewCredential)],
    )
    records = [decode_record(encode_record(each)) for each in decision.records]
    image.apply(records, image.end_offset + len(records))
    return {
        user: ErrorCode.NONE if refused is None else refused.code
        for user, refused in decision.answer.items()
    }


def test_a_password_can_be_checked_once_it_is_committed() -> None:
    image = MetadataImage()

    assert change(image, added("alice")) == {"alice": ErrorCode.NONE}

    expected = credential_of("SCRAM-SHA-256", SALTED, salt=SALT, rounds=8_192)
    assert credential_in(image, "alice", "SCRAM-SHA-256") == expected
    assert credential_in(image, "alice", "SCRAM-SHA-512") is None
    assert rounds_of(image, "alice") == {"SCRAM-SHA-256": 8_192}


def test_a_removed_user_is_unknown() -> None:
    image = MetadataImage()
    change(image, added("alice"))

    assert change(image, CredentialRemoval("alice", 1)) == {"alice": ErrorCode.NONE}

    assert not image.scram
    missing = change(image, CredentialRemoval("alice", 1))
    assert missing == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (added(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (added("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (added("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (added("a", rounds=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (added("a", rounds=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (added("__cluster"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (added("__local"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (added("ANONYMOUS"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (CredentialRemoval("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (CredentialRemoval("a", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_change_that_kafka_refuses_is_refused(
    wanted: CredentialRemoval | NewCredential, code: ErrorCode
) -> None:
    image = MetadataImage()

    assert change(image, wanted) == {wanted.user: code}
    assert not image.scram


def test_a_user_that_is_named_twice_is_not_changed_and_others_are() -> None:
    image = MetadataImage()

    codes = change(image, added("a"), added("a", 2), added("b"))

    assert codes == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": ErrorCode.NONE}
    assert image.scram.keys() == {("b", "SCRAM-SHA-256")}


def test_users_outlive_a_snapshot() -> None:
    image, copy = MetadataImage(), MetadataImage()
    change(image, added("a"), added("b", 2))
    change(copy, added("gone"))

    copy.replace(list(image.records()), image.end_offset)

    assert copy.scram == image.scram


def test_no_text_shows_what_is_kept_of_a_password() -> None:
    image = MetadataImage()
    change(image, added("a"))

    [record] = image.scram.values()

    assert repr(record) == "ScramRecord(user='a', mechanism='SCRAM-SHA-256', rounds=8192)"
    assert "salt" not in repr(added("a"))


def test_a_removal_of_nobody_is_a_damaged_log() -> None:
    image = MetadataImage()
    removal = alter_credentials(image, [], [added("a")]).records
    image.apply(removal, 1)
    gone = alter_credentials(image, [CredentialRemoval("a", 1)], []).records
    image.apply(gone, 2)

    with pytest.raises(CorruptLog, match="unknown user"):
        image.apply(gone, 3)
