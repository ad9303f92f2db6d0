"""Envelope (key 58), version 0: a request that another broker passes on to this controller."""

from typing import TYPE_CHECKING, Any

from headwater.core_log.broker.authorization import answer
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.quotas import Counted
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import LENGTH, encode_response, read_request_header
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headwater.core_log.security.principal import decode_principal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(EnvelopeRequest)
async def handle_envelope(
    broker: "Broker", request: EnvelopeRequest, context: RequestContext
) -> EnvelopeResponse:
    if not broker.is_controller:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = memoryview(request.request_data)
    try:
        header = read_request_header(frame)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    served = broker.served.get(header.api_key)
    low, high = served.versions if served is not None else (0, -1)
    if served is None or not served.is_forwarded or not low <= header.api_version <= high:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        inner: Any = decode(served.request, frame, header.api_version, header.body_position)
        client_host = bytes(request.client_host_address).decode()
    except (DecodeError, UnicodeDecodeError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        principal = decode_principal(request.request_principal)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    use = broker.quotas.count(principal, header.client_id, 0, None)
    asked = context._replace(
        api_version=header.api_version,
        client_id=header.client_id,
        client_host=client_host,
        principal=principal,
        use=use,
    )
    epoch = broker.quorum.leader_epoch
    work = answer(broker, served, inner, asked)
    response = await work if use is None else await Counted(work, use)
    if not broker.is_controller or broker.quorum.leader_epoch != epoch:  # the next one knows
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if use is not None:
        response = use.respond(response, header.api_version)
    data = encode_response(response, header.api_key, header.api_version, header.correlation_id)
    return EnvelopeResponse(response_data=data[LENGTH.size :])
