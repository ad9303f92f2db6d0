"""Decisions about ACLs, users of SASL/SCRAM and quotas of clients, as Kafka's controller takes
them."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage, acl_record
from headwater.core_log.replication.metadata_records import (
    ClientQuotaRecord,
    MetadataRecord,
    RemoveAclRecord,
    RemoveScramRecord,
    ScramRecord,
)
from headwater.core_log.security.acls import Acl, AclFilter, problem_of
from headwater.core_log.security.principal import RESERVED_NAMES
from headwater.core_log.security.quotas import InvalidQuota, QuotaEntity, check_value, entity_of
from headwater.core_log.security.sasl_mechanisms import (
    ROUNDS_MAX,
    ROUNDS_MIN,
    ScramCredential,
    credential_of,
)

MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's numbers of the mechanisms."""
NUMBER_OF = {name: number for number, name in MECHANISMS.items()}
TWICE = "A user credential cannot be altered twice in the same request"
CHANGES_PER_REQUEST_MAX = 10_000

EntityParts = tuple[tuple[str, str | None], ...]
"""Types and names of an entity, as a request has them."""


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
        return refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username is reserved")
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


def create_acls(
    image: MetadataImage, wanted: Sequence[Acl], new_id: Callable[[], UUID]
) -> Decision[list[RequestRefusal | None] | RequestRefusal]:
    """Returns the refusal of each ACL, or None; one that exists already is created again without a
    record."""
    if len(wanted) > CHANGES_PER_REQUEST_MAX:
        return Decision(_too_many())
    known = set(image.acls.values())
    answer = list[RequestRefusal | None]()
    records = list[MetadataRecord]()
    for acl in wanted:
        problem = problem_of(acl)
        if problem is not None:
            answer.append(RequestRefusal(ErrorCode.INVALID_REQUEST, problem))
            continue
        if acl not in known:
            known.add(acl)
            records.append(acl_record(new_id(), acl))
        answer.append(None)
    return Decision(answer, records)


def delete_acls(
    image: MetadataImage, filters: Sequence[AclFilter]
) -> Decision[list[list[Acl]] | RequestRefusal]:
    """Returns the removed ACLs of each filter; one that two filters match is in both answers."""
    answer = [[acl for acl in image.acls.values() if each.matches(acl)] for each in filters]
    chosen = {acl for acls in answer for acl in acls}
    if len(chosen) > CHANGES_PER_REQUEST_MAX:
        return Decision(_too_many())
    records = [RemoveAclRecord(acl_id) for acl_id, acl in image.acls.items() if acl in chosen]
    return Decision(answer, list(records))


def _too_many() -> RequestRefusal:
    return RequestRefusal(
        ErrorCode.INVALID_REQUEST, f"More than {CHANGES_PER_REQUEST_MAX} ACLs in one request"
    )


class QuotaChanges(NamedTuple):
    """An entity with new values by key; None removes one."""

    parts: EntityParts
    values: tuple[tuple[str, float | None], ...]


def alter_quotas(
    image: MetadataImage, wanted: Sequence[QuotaChanges]
) -> Decision[dict[EntityParts, RequestRefusal | None] | RequestRefusal]:
    """Returns the refusal of each entity, or None. An entity with a refusal does not change; one
    that is named again is refused, and its first changes are made. A key that is named twice gets
    the same words. All as in Kafka."""
    if sum(len(each.values) for each in wanted) > CHANGES_PER_REQUEST_MAX:
        return Decision(_refused(f"More than {CHANGES_PER_REQUEST_MAX} quotas in one request"))
    answer: dict[EntityParts, RequestRefusal | None] = {}
    records: list[MetadataRecord] = []
    for each in wanted:
        if each.parts in answer:
            answer[each.parts] = _refused(_twice(each.parts))
            continue
        try:
            entity = entity_of(each.parts)
            records += _changes(image, entity, each)
            answer[each.parts] = None
        except InvalidQuota as error:
            answer[each.parts] = _refused(str(error))
    return Decision(answer, records)


def _changes(
    image: MetadataImage, entity: QuotaEntity, wanted: QuotaChanges
) -> list[MetadataRecord]:
    values = dict[str, float | None]()
    for key, value in wanted.values:
        if key in values:
            raise InvalidQuota(_twice(wanted.parts))
        values[key] = value if value is None else float(value)
    known = image.quotas.get(entity, {})
    records = list[MetadataRecord]()
    for key, value in values.items():
        if value is not None:
            check_value(entity, key, value)
        if value != known.get(key):
            records.append(ClientQuotaRecord(*entity, key=str(key), value=value))
    return records


def _refused(message: str) -> RequestRefusal:
    return RequestRefusal(ErrorCode.INVALID_REQUEST, message)


def _twice(parts: EntityParts) -> str:
    inner = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{inner}}})"
