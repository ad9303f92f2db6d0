"""Decisions about the users of SASL/SCRAM, as Kafka's controller takes them."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import (
    MetadataRecord,
    RemoveScramRecord,
    ScramRecord,
)
from headwater.core_log.security.principal import RESERVED_NAMES
from headwater.core_log.security.scram import (
    ROUNDS_MAX,
    ROUNDS_MIN,
    ScramCredential,
    credential_of,
)

MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's numbers of the mechanisms."""
NUMBER_OF = {name: number for number, name in MECHANISMS.items()}
TWICE = "A user credential cannot be altered twice in the same request"


@dataclass(frozen=True, slots=True)
class CredentialRemoval:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A user's password, hashed by the client."""

    user: str
    mechanism: int
    rounds: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


def alter_credentials(
    image: MetadataImage,
    removals: Sequence[CredentialRemoval],
    additions: Sequence[NewCredential],
) -> Decision[dict[str, RequestRefusal | None]]:
    """Returns, by user, the refusal. As in Kafka a user may be named once in a request; one that
    is named twice is refused both times."""
    accepted: dict[str, MetadataRecord] = {}
    refused: dict[str, RequestRefusal] = {}
    wanted: list[CredentialRemoval | NewCredential] = [*removals, *additions]
    for each in wanted:
        if each.user in refused:
            continue
        if accepted.pop(each.user, None) is not None:
            refused[each.user] = RequestRefusal(ErrorCode.DUPLICATE_RESOURCE, TWICE)
        elif (refusal := _refusal(image, each)) is not None:
            refused[each.user] = refusal
        else:
            accepted[each.user] = _record(each)
    answer: dict[str, RequestRefusal | None] = {**dict.fromkeys(accepted), **refused}
    return Decision(answer, list(accepted.values()))


def _refusal(
    image: MetadataImage, wanted: CredentialRemoval | NewCredential
) -> RequestRefusal | None:
    def refused(code: ErrorCode, message: str) -> RequestRefusal:
        return RequestRefusal(code, message)

    if not wanted.user:
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if wanted.mechanism not in MECHANISMS:
        return refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(wanted, CredentialRemoval):
        if (wanted.user, MECHANISMS[wanted.mechanism]) not in image.scram:
            return refused(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return None
    if wanted.user in RESERVED_NAMES or "\0" in wanted.user:
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "This name is reserved")
    if wanted.rounds < ROUNDS_MIN:
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.rounds > ROUNDS_MAX:
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not wanted.salt or not wanted.salted_password:
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and password must not be empty")
    return None


def _record(wanted: CredentialRemoval | NewCredential) -> MetadataRecord:
    mechanism = MECHANISMS[wanted.mechanism]
    if isinstance(wanted, CredentialRemoval):
        return RemoveScramRecord(wanted.user, mechanism)
    made = credential_of(mechanism, wanted.salted_password, salt=wanted.salt, rounds=wanted.rounds)
    salt, stored, server = (
        b64encode(each).decode() for each in (made.salt, made.stored_key, made.server_key)
    )
    return ScramRecord(wanted.user, mechanism, salt, stored, server, made.rounds)


def credential_in(image: MetadataImage, user: str, mechanism: str) -> ScramCredential | None:
    known = image.scram.get((user, mechanism))
    if known is None:
        return None
    salt, stored, server = (
        b64decode(each) for each in (known.salt, known.stored_key, known.server_key)
    )
    return ScramCredential(salt, stored, server, known.rounds)


def rounds_of(image: MetadataImage, user: str) -> Mapping[str, int]:
    """Returns the rounds of a user by mechanism; empty for an unknown one."""
    return {
        mechanism: image.scram[user, mechanism].rounds
        for mechanism in MECHANISMS.values()
        if (user, mechanism) in image.scram
    }
