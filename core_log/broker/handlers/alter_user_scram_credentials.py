"""AlterUserScramCredentials (key 51), version 0: adds, changes and removes users.

Names that this log uses itself (`__cluster`, `__local`, `ANONYMOUS`) are refused. So are new users
while every program can act as a broker, without authentication and without a cluster secret: it
could read what passwords are checked against (decision 29).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headwater.core_log.replication.access_changes import (
    CredentialRemoval,
    NewCredential,
    alter_credentials,
)
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ACCEPTED = RequestRefusal(ErrorCode.NONE)
UNGUARDED = RequestRefusal(
    ErrorCode.SECURITY_DISABLED,
    "Users are kept only where brokers prove who they are: set security.sasl, or --cluster-secret",
)


@handles(AlterUserScramCredentialsRequest, is_forwarded=True)
async def handle_alter_user_scram_credentials(
    broker: "Broker", request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    removals = [CredentialRemoval(each.name, each.mechanism) for each in request.deletions]
    additions = [
        NewCredential(
            each.name,
            each.mechanism,
            each.iterations,
            bytes(each.salt),
            bytes(each.salted_password),
        )
        for each in request.upsertions
    ]
    outcome: dict[str, RequestRefusal | None] | RequestRefusal = UNGUARDED
    if broker.authorizer is not None or not additions:
        outcome = await decide_and_commit(
            broker, lambda: alter_credentials(broker.image, removals, additions)
        )
    if isinstance(outcome, RequestRefusal):
        users = [each.user for each in removals] + [each.user for each in additions]
        outcome = dict.fromkeys(users, outcome)
    return AlterUserScramCredentialsResponse(
        results=[answer(user, each or ACCEPTED) for user, each in outcome.items()]
    )


def answer(user: str, refused: RequestRefusal) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user, error_code=refused.code, error_message=refused.message
    )
