"""Decisions about quotas of clients, as Kafka's ClientQuotaControlManager takes them."""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import ClientQuotaRecord, MetadataRecord
from headwater.core_log.security.quotas import InvalidQuota, QuotaEntity, check_value, entity_of

CHANGES_PER_REQUEST_MAX = 10_000

EntityParts = tuple[tuple[str, str | None], ...]
"""Types and names of an entity, as a request has them."""


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
