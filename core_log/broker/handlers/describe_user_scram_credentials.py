"""DescribeUserScramCredentials (key 50), version 0: users, with their mechanisms and iterations.

Keys and salts are never shown, as in Kafka.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headwater.core_log.replication.access_changes import NUMBER_OF, rounds_of

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
UNKNOWN = "Attempt to describe a user credential that does not exist: "


@handles(DescribeUserScramCredentialsRequest)
async def handle_describe_user_scram_credentials(
    broker: "Broker", request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    named = [each.name for each in request.users or ()]
    times = Counter(named or {user for user, _ in broker.image.scram})
    results = [
        describe(broker, user, is_repeated=bool(named) and count > 1)
        for user, count in sorted(times.items())
    ]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def describe(
    broker: "Broker", user: str, *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        return refusal(user, ErrorCode.DUPLICATE_RESOURCE, TWICE + user)
    rounds = rounds_of(broker.image, user)
    if not rounds:
        return refusal(user, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN + user)
    infos = [
        CredentialInfo(mechanism=NUMBER_OF[mechanism], iterations=count)
        for mechanism, count in rounds.items()
    ]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


def refusal(user: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
