"""Frames and their headers: the API of a request, and the request of an answer."""

from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.message import Request, encode_into
from headwater.core_log.protocol.primitives import SHORT, WireReader, string_codec

LENGTH = Struct(">i")
"""Every frame begins with the number of bytes that follow."""

API_VERSIONS = 18

FLEXIBLE_FROM = {
    0: 9,  # Produce
    1: 12,  # Fetch
    2: 6,  # ListOffsets
    3: 9,  # Metadata
    8: 8,  # OffsetCommit
    9: 6,  # OffsetFetch
    10: 3,  # FindCoordinator
    11: 6,  # JoinGroup
    12: 4,  # Heartbeat
    13: 4,  # LeaveGroup
    14: 4,  # SyncGroup
    15: 5,  # DescribeGroups
    16: 3,  # ListGroups
    18: 3,  # ApiVersions
    19: 5,  # CreateTopics
    20: 4,  # DeleteTopics
    21: 2,  # DeleteRecords
    22: 2,  # InitProducerId
    23: 4,  # OffsetForLeaderEpoch
    24: 3,  # AddPartitionsToTxn
    25: 3,  # AddOffsetsToTxn
    26: 3,  # EndTxn
    27: 1,  # WriteTxnMarkers
    28: 3,  # TxnOffsetCommit
    29: 2,  # DescribeAcls
    30: 2,  # CreateAcls
    31: 2,  # DeleteAcls
    32: 4,  # DescribeConfigs
    33: 2,  # AlterConfigs
    34: 2,  # AlterReplicaLogDirs
    35: 2,  # DescribeLogDirs
    36: 2,  # SaslAuthenticate
    37: 2,  # CreatePartitions
    38: 2,  # CreateDelegationToken
    39: 2,  # RenewDelegationToken
    40: 2,  # ExpireDelegationToken
    41: 2,  # DescribeDelegationToken
    42: 2,  # DeleteGroups
    43: 2,  # ElectLeaders
    44: 1,  # IncrementalAlterConfigs
    45: 0,  # AlterPartitionReassignments
    46: 0,  # ListPartitionReassignments
    48: 1,  # DescribeClientQuotas
    49: 1,  # AlterClientQuotas
    50: 0,  # DescribeUserScramCredentials
    51: 0,  # AlterUserScramCredentials
    52: 0,  # Vote
    53: 1,  # BeginQuorumEpoch
    54: 1,  # EndQuorumEpoch
    55: 0,  # DescribeQuorum
    56: 0,  # AlterPartition
    57: 0,  # UpdateFeatures
    58: 0,  # Envelope
    59: 0,  # FetchSnapshot
    60: 0,  # DescribeCluster
    61: 0,  # DescribeProducers
    62: 0,  # BrokerRegistration
    63: 0,  # BrokerHeartbeat
    64: 0,  # UnregisterBroker
    65: 0,  # DescribeTransactions
    66: 0,  # ListTransactions
    67: 0,  # AllocateProducerIds
    68: 0,  # ConsumerGroupHeartbeat
    69: 0,  # ConsumerGroupDescribe
    71: 0,  # GetTelemetrySubscriptions
    72: 0,  # PushTelemetry
    74: 0,  # ListConfigResources
    75: 0,  # DescribeTopicPartitions
    76: 0,  # ShareGroupHeartbeat
    77: 0,  # ShareGroupDescribe
    78: 0,  # ShareFetch
    79: 0,  # ShareAcknowledge
    80: 0,  # AddRaftVoter
    81: 0,  # RemoveRaftVoter
    82: 0,  # UpdateRaftVoter
    83: 0,  # InitializeShareGroupState
    84: 0,  # ReadShareGroupState
    85: 0,  # WriteShareGroupState
    86: 0,  # DeleteShareGroupState
    87: 0,  # ReadShareGroupStateSummary
    88: 0,  # StreamsGroupHeartbeat
    89: 0,  # StreamsGroupDescribe
    90: 0,  # DescribeShareGroupOffsets
    91: 0,  # AlterShareGroupOffsets
    92: 0,  # DeleteShareGroupOffsets
}
"""The first version of each API whose headers have a tag section. It has all APIs that Kafka's
nodes offer to clients and each other, so that the header of an API we do not serve can be read."""

_REQUEST = Struct(">hhi")
_RESPONSE = Struct(">i")
_CLIENT_ID = string_codec(SHORT, nullable=True)
"""Never compact in any version: a broker must be able to read every ApiVersions request."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """Reads the header of a frame without its length."""
    try:
        api_key, api_version, correlation_id = _REQUEST.unpack_from(frame)
        reader = WireReader(frame, _REQUEST.size)
        client_id = _CLIENT_ID.read(reader)
        if _is_flexible(api_key, api_version):
            reader.skip_tags()
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise DecodeError("request header breaks its format", reason=str(error)) from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, reader.position)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Returns the header. That of ApiVersions never has tags: its reader does not know the broker's
    versions yet."""
    header = _RESPONSE.pack(correlation_id)
    return header + b"\0" if _has_response_tags(api_key, version) else header


def read_response_header(frame: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """Returns the correlation id of an answer to our request, and where its body begins."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame)
        reader = WireReader(frame, _RESPONSE.size)
        if _has_response_tags(api_key, version):
            reader.skip_tags()
    except (IndexError, struct_error) as error:
        raise DecodeError("response header breaks its format", reason=str(error)) from error
    return correlation_id, reader.position


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Returns a whole frame, including its length."""
    return bytes(request_frame(request, version, correlation_id, client_id))


def request_frame(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Returns the frame in memory of its own: the receiver may write into it, and nothing is
    copied."""
    frame = bytearray(LENGTH.size)
    frame += _REQUEST.pack(request.api_key, version, correlation_id)
    _CLIENT_ID.write(frame, client_id)
    if _is_flexible(request.api_key, version):
        frame.append(0)
    encode_into(frame, request, version)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def encode_response(response: Any, api_key: int, version: int, correlation_id: int) -> bytes:
    """Returns a whole frame, including its length."""
    frame = bytearray(LENGTH.size)
    frame += response_header(api_key, version, correlation_id)
    encode_into(frame, response, version)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return bytes(frame)


def _is_flexible(api_key: int, version: int) -> bool:
    return api_key in FLEXIBLE_FROM and version >= FLEXIBLE_FROM[api_key]


def _has_response_tags(api_key: int, version: int) -> bool:
    return api_key != API_VERSIONS and _is_flexible(api_key, version)
