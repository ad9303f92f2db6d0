"""A cluster without sockets: brokers that answer as a test tells them, and can go away."""

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.links.connection import Channel, ConnectionLost
from headwater.core_log.protocol.frames import encode_response, read_request_header
from headwater.core_log.protocol.message import Request, decode
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from headwater.core_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.core_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = Any
Handler = Callable[[int, Any], Answer]
"""From the broker that was asked and the request to the response; None loses the connection."""

NEVER = object()
"""What a handler gives that does not answer at all."""


class ScriptedCluster:
    """Topics have one partition, led by whom `leaders` says; the rest is up to `handlers`."""

    def __init__(self, brokers: int = 1, *, transaction_version: int = 2) -> None:
        self.brokers = {node: f"broker{node}" for node in range(1, brokers + 1)}
        self.leaders: dict[str, int] = {}
        self.coordinator = 1
        self.transaction_version = transaction_version
        self.down: set[int] = set()
        self.asked: list[tuple[int, Any]] = []
        self.versions: dict[int, tuple[int, int]] = {}  # where not all are served
        self._requests: dict[int, type[Request[Any]]] = {}
        self._handlers: dict[int, Handler] = {}
        self.channels: list[ScriptedChannel] = []
        self.on(ApiVersionsRequest, self._api_versions)
        self.on(MetadataRequest, self._metadata)
        self.on(FindCoordinatorRequest, self._find_coordinator)

    def on(self, request: type[Request[Any]], handler: Handler) -> None:
        self._requests[request.api_key] = request
        self._handlers[request.api_key] = handler

    def requests(self, kind: type) -> list[tuple[int, Any]]:
        return [(node, request) for node, request in self.asked if isinstance(request, kind)]

    def log(self, **settings: object) -> KafkaLog:
        """A log that tries as long as it takes on a busy machine, unless `settings` limit it."""
        patience = {"retry_for_ms": 3_600_000, "unknown_topic_for_ms": 50, "retry_delay_ms": 1}
        chosen = {"bootstrap": [f"broker{node}:9092" for node in self.brokers], **patience}
        return KafkaLog(KafkaSettings.model_validate({**chosen, **settings}), dial=self.dial)

    async def dial(self, host: str, port: int) -> Channel:
        node = int(host.removeprefix("broker"))
        if node in self.down:
            raise ConnectionLost("connection refused")
        channel = ScriptedChannel(self, node)
        self.channels.append(channel)
        return channel

    def stop(self, node: int) -> None:
        self.down.add(node)
        for channel in self.channels:
            if channel.node == node:
                channel.close()

    def answer(self, node: int, frame: memoryview) -> memoryview | object | None:
        header = read_request_header(frame)
        cls = self._requests[header.api_key]
        request = decode(cls, frame, header.api_version, header.body_position)
        self.asked.append((node, request))
        response = self._handlers[header.api_key](node, request)
        if response is None or response is NEVER:
            return response
        version = header.api_version
        if response.__class__ is ApiVersionsResponse and response.error_code:
            version = 0  # in which every broker refuses
        written = encode_response(response, header.api_key, version, header.correlation_id)
        return memoryview(written)[4:]

    def _api_versions(self, node: int, request: ApiVersionsRequest) -> Answer:
        served = {key: cls.versions for key, cls in self._requests.items()} | self.versions
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in served.items()
        ]
        feature = FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.transaction_version
        )
        return ApiVersionsResponse(
            api_keys=keys, finalized_features=[feature], finalized_features_epoch=1
        )

    def _metadata(self, node: int, request: MetadataRequest) -> Answer:
        brokers = [
            MetadataResponseBroker(node_id=each, host=host, port=9092)
            for each, host in self.brokers.items()
        ]
        names = self.leaders if request.topics is None else [t.name or "" for t in request.topics]
        return MetadataResponse(brokers=brokers, topics=[self._topic(name) for name in names])

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(error_code=3, name=name)
        part = MetadataResponsePartition(partition_index=0, leader_id=self.leaders[name])
        return MetadataResponseTopic(name=name, partitions=[part])

    def _find_coordinator(self, node: int, request: FindCoordinatorRequest) -> Answer:
        return FindCoordinatorResponse(
            node_id=self.coordinator, host=self.brokers[self.coordinator], port=9092
        )


class ScriptedChannel:
    """Answers at once, on the next turn of the loop."""

    is_in_process = False

    def __init__(self, cluster: ScriptedCluster, node: int) -> None:
        self._cluster, self.node = cluster, node
        self._waiting: list[Future[memoryview]] = []
        self.is_open = True

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        loop = asyncio.get_running_loop()
        future: Future[memoryview] = loop.create_future()
        self._waiting.append(future)
        future.add_done_callback(self._waiting.remove)
        loop.call_soon(self._answer, frame, future)
        return future

    def tell(self, frame: bytearray) -> None:
        self._cluster.answer(self.node, memoryview(frame)[4:])

    def _answer(self, frame: bytearray, future: "Future[memoryview]") -> None:
        if future.done():
            return
        if not self.is_open:
            future.set_exception(ConnectionLost("gone"))
            return
        answer = self._cluster.answer(self.node, memoryview(frame)[4:])
        if answer is None:
            self.close()
        elif isinstance(answer, memoryview) and not future.done():
            future.set_result(answer)

    def close(self) -> None:
        self.is_open = False
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(ConnectionLost("gone"))
