"""How handlers of administrative requests get a decision, and turn refusals into answers."""

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from core_log.broker.refusals import code_of
from core_log.errors import HeadwaterError
from core_log.protocol.error_codes import ErrorCode
from core_log.replication.decisions import Decision, Refused

if TYPE_CHECKING:
    from core_log.broker.broker import Broker

Answer = TypeVar("Answer")


class ResourceType(IntEnum):
    """What can have a configuration, numbered as Kafka does."""

    TOPIC = 2
    BROKER = 4


async def decided(
    broker: "Broker", decide: Callable[[], Decision[Answer]], *, validate_only: bool = False
) -> Answer | Refused:
    """The answer once it is committed; when it could not be, that as a refusal of everything."""
    try:
        return await broker.metadata.change(decide, validate_only=validate_only)
    except HeadwaterError as error:
        return Refused(code_of(error), error.problem)


def broker_name_refused(broker: "Broker", name: str) -> Refused | None:
    """Only the broker that is asked can speak of itself; the empty name is all brokers."""
    if name in ("", str(broker.node_id)):
        return None
    if not name.isascii() or not name.isdigit():
        return Refused(ErrorCode.INVALID_REQUEST, "The name of a broker is its id, a number")
    return Refused(ErrorCode.INVALID_REQUEST, f"This is broker {broker.node_id}, not {name}")


def unknown_resource(resource_type: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no settings here"
    )
