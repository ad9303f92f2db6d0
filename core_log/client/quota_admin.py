"""Quotas of clients for administrators: list, set and remove them."""

from collections.abc import Mapping

from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    QuotaAlteration,
    QuotaOperation,
)
from headwater.core_log.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
)
from headwater.core_log.security.quotas import QuotaEntity, entity_of


class QuotaAdmin:
    """Administration of quotas; every answer comes from the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Returns values by entity and key, in order."""

        async def attempt() -> Mapping[QuotaEntity, Mapping[str, float]]:
            answer = await self._cluster.ask_any(DescribeClientQuotasRequest())
            check(answer.error_code, message=answer.error_message)
            found = {
                entity_of([(each.entity_type, each.entity_name) for each in entry.entity]): {
                    each.key: each.value for each in entry.values
                }
                for entry in answer.entries or ()
            }
            return {
                entity: dict(sorted(found[entity].items()))
                for entity in sorted(found, key=lambda each: [name or "" for name in each])
            }

        return await self._cluster.persist(attempt)

    async def change(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        """Sets the values of some keys; None removes a key's quota. Raises `ConfigError` for what
        cannot be a quota."""
        entry = QuotaAlteration(
            entity=[
                AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts()
            ],
            ops=[
                QuotaOperation(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )

        async def attempt() -> None:
            answer = await self._cluster.ask_any(AlterClientQuotasRequest(entries=[entry]))
            [result] = answer.entries
            if result.error_code == ErrorCode.INVALID_REQUEST:
                raise ConfigError("the quota cannot be set", reason=result.error_message or "")
            check(result.error_code, message=result.error_message)

        await self._cluster.persist(attempt)
