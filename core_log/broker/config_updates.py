"""How a configuration is changed, either way: whose may be, and what is answered."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from headwater.core_log.broker.administration import (
    ResourceType,
    broker_name_refused,
    unknown_resource,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

DONE = RequestRefusal(ErrorCode.NONE)


class ConfigResource(Protocol):
    """One key of a request."""

    @property
    def name(self) -> str: ...


class ResourceChanges(Protocol):
    """Something that has a configuration, as a request names it."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[ConfigResource]: ...


R = TypeVar("R", bound=ResourceChanges)
A = TypeVar("A")


async def each_altered(
    broker: "Broker",
    resources: Sequence[R],
    alter: Callable[[R], Awaitable[RequestRefusal | None]],
    *,
    answer: Callable[..., A],
) -> list[A]:
    """What became of each; a refusal of one leaves the others alone."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    answers = list[A]()
    for each in resources:
        outcome = refused_outright(broker, each, times) or await alter(each) or DONE
        answers.append(
            answer(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return answers


def refused_outright(
    broker: "Broker", resource: ResourceChanges, times: Counter[tuple[int, str]]
) -> RequestRefusal | None:
    """What is wrong with a resource before its configuration is looked at."""
    names = [config.name for config in resource.configs]
    if times[resource.resource_type, resource.resource_name] > 1:
        return RequestRefusal(ErrorCode.INVALID_REQUEST, "Each resource may be named once only")
    if len(set(names)) < len(names):
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST, "Each configuration key may be named once only"
        )
    if resource.resource_type == ResourceType.BROKER:
        return broker_name_refused(broker, resource.resource_name) or RequestRefusal(
            ErrorCode.INVALID_REQUEST, "Settings of a broker are read when it starts"
        )
    if resource.resource_type != ResourceType.TOPIC:
        return unknown_resource(resource.resource_type)
    if not resource.resource_name:
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST, "Defaults of all topics are broker settings"
        )
    return None
