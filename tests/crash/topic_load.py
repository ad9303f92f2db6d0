"""Topics that come and go: what was acknowledged as made is there, and as deleted is gone."""

import threading
import time
from random import Random

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.builders import batch
from tests.crash.plain_client import Wire

MADE, DELETED, UNKNOWN = "made", "deleted", "unknown"
PARTITIONS = 2
KEPT_SHARE = 0.2
JUDGED_MAX = 60


class TopicLoad:
    """Makes a topic, writes to it, and mostly deletes it again."""

    def __init__(self, address: tuple[str, int], random: Random) -> None:
        self._address, self._random = address, random
        self._outcomes: dict[str, str] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.faults: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        self._is_over.set()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(30)

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            name = f"brief-{number}"
            self._outcomes[name] = UNKNOWN
            try:
                with Wire(self._address, answer_s_max=5) as wire:
                    self._live(wire, name)
            except OSError:
                self._is_over.wait(0.02)
            self._is_over.wait(self._random.random() * 0.2)

    def _live(self, wire: Wire, name: str) -> None:
        code = wire.create_topic(name, PARTITIONS, {})
        if code:
            return
        placed = wire.produce(name, {index: bytes(made(name)) for index in range(PARTITIONS)})
        if any(each.error_code for each in placed.values()):
            return
        if self._random.random() < KEPT_SHARE:
            self._outcomes[name] = MADE
            return
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)
        if wire.ask(request, 6).responses[0].error_code == ErrorCode.NONE:
            self._outcomes[name] = DELETED

    def settled(self) -> dict[str, str]:
        """What the newest of them came to, as far as it is known."""
        outcomes = [each for each in self._outcomes.copy().items() if each[1] != UNKNOWN]
        return dict(outcomes[-JUDGED_MAX:])

    def judge(self, wire: Wire, settled: dict[str, str]) -> list[str]:
        topics = [MetadataRequestTopic(name=name) for name in settled]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = wire.ask(request, 9)
        exists = {each.name: each.error_code == ErrorCode.NONE for each in answer.topics}
        faults = [
            f"topics: {name} was {outcome}, which is not so any more"
            for name, outcome in settled.items()
            if exists[name] != (outcome == MADE)
        ]
        for name in [each for each, outcome in settled.items() if outcome == MADE and exists[each]]:
            read = wire.fetch(name, dict.fromkeys(range(PARTITIONS), 0), committed=False)
            values = [each.records[0].value for part in read.values() for each in part.batches]
            if values != [name.encode()] * PARTITIONS:
                faults.append(f"topics: {name} holds {values}")
        return faults


def made(name: str) -> bytearray:
    return batch(name, timestamp_ms=time.time_ns() // 1_000_000)
