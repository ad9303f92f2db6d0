"""Decisions about ACLs, as Kafka's AclControlManager makes them."""

from collections.abc import Callable, Sequence
from uuid import UUID

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage, acl_record
from headwater.core_log.replication.metadata_records import MetadataRecord, RemoveAclRecord
from headwater.core_log.security.acls import Acl, AclFilter, problem_of

CHANGES_PER_REQUEST_MAX = 10_000


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
