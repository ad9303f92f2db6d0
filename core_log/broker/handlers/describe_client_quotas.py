"""DescribeClientQuotas (key 48), versions 0 to 1: the quotas of users, clients and addresses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedQuota,
    QuotaFilterComponent,
    QuotaValue,
)
from headwater.core_log.security.quotas import CLIENT_ID, IP, USER, QuotaEntity

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

EXACT, DEFAULT, ANY = 0, 1, 2


class InvalidFilter(ValueError):
    """A filter that Kafka refuses, with its words."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


class QuotaFilter(NamedTuple):
    """The names that are wanted, None for the default; and the types with any name."""

    names: dict[str, str | None]
    types: frozenset[str]
    is_strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        parts = dict(entity.parts())
        if any(kind not in parts or parts[kind] != name for kind, name in self.names.items()):
            return False
        if not self.types <= parts.keys():
            return False
        return not self.is_strict or len(parts) == len(self.names) + len(self.types)


@handles(DescribeClientQuotasRequest)
async def handle_describe_client_quotas(
    broker: "Broker", request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        wanted = read(request.components, is_strict=request.strict)
    except InvalidFilter as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            DescribedQuota(
                entity=[
                    DescribedEntity(entity_type=kind, entity_name=name)
                    for kind, name in entity.parts()
                ],
                values=[QuotaValue(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in broker.image.quotas.items()
            if wanted.matches(entity)
        ],
    )


def read(components: Sequence[QuotaFilterComponent], *, is_strict: bool) -> QuotaFilter:
    names, types = dict[str, str | None](), set[str]()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise InvalidFilter("Invalid empty entity type.")
        if kind in names or kind in types:
            raise InvalidFilter(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidFilter(f"Unsupported entity type {kind}", ErrorCode.UNSUPPORTED_VERSION)
        if each.match_type not in (EXACT, DEFAULT, ANY):
            raise InvalidFilter(f"Unknown match type {each.match_type}")
        if each.match_type == EXACT and each.match is None:
            raise InvalidFilter("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type != EXACT and each.match is not None:
            name = "MATCH_TYPE_DEFAULT" if each.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise InvalidFilter(f"Request specified {name}, but also specified a match string.")
        if each.match_type == ANY:
            types.add(kind)
        else:
            names[kind] = each.match
    if IP in (named := names.keys() | types) and len(named) > 1:
        raise InvalidFilter(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return QuotaFilter(names, frozenset(types), is_strict)
