"""Users of SASL/SCRAM for administrators: list, add and remove them."""

import secrets
from collections.abc import Mapping

from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.core_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from headwater.core_log.security.scram import DEFAULT_ROUNDS, hash_password, new_salt

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in MECHANISMS.items()}


class UserAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self) -> Mapping[str, Mapping[str, int]]:
        """Returns mechanisms and rounds by user."""

        async def attempt() -> Mapping[str, Mapping[str, int]]:
            answer = await self._cluster.ask_any(DescribeUserScramCredentialsRequest(users=None))
            check(answer.error_code, message=answer.error_message)
            return {
                each.user: {
                    NAMES[info.mechanism]: info.iterations for info in each.credential_infos
                }
                for each in sorted(answer.results, key=lambda each: each.user)
            }

        return await self._cluster.persist(attempt)

    async def set_password(self, user: str, password: str, mechanism: str) -> None:
        """Adds a user, or changes its password, which does not leave this process."""
        salt = new_salt(secrets.randbits)
        salted = hash_password(mechanism, password, salt, DEFAULT_ROUNDS)
        addition = ScramCredentialUpsertion(
            name=user,
            mechanism=MECHANISMS[mechanism],
            iterations=DEFAULT_ROUNDS,
            salt=salt,
            salted_password=salted,
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=[addition]))

    async def remove(self, user: str) -> None:
        """Removes all passwords of a user; raises `ConfigError` for an unknown one."""
        known = (await self.all()).get(user)
        if known is None:
            raise ConfigError(
                "there is no such user", user=user, hint="headwater cluster users list"
            )
        for mechanism in known:  # a request names a user once
            removal = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
            await self._alter(AlterUserScramCredentialsRequest(deletions=[removal]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            [result] = (await self._cluster.ask_any(request)).results
            if result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL:
                raise ConfigError("the user cannot be added", reason=result.error_message or "")
            check(result.error_code, message=result.error_message, user=result.user)

        await self._cluster.persist(attempt)
