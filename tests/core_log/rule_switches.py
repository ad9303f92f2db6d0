"""Rules of a replicated log, each of them taken out as long as the patch lasts: whoever tests
replicas must find that."""

import pytest

from headwater.core_log.broker import partition as partition_module
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.partition import Partition
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.elections import ElectionRules, Losses
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata import Topic


def commit_what_the_own_disk_has(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leader) -> None:
        if self.has_enough_in_sync:
            self.high_watermark = max(self.high_watermark, self.durable_offset)

    patch.setattr(Leader, "_advance", advance)


def commit_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "has_enough_in_sync", property(lambda self: True))


def keep_what_diverges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_module, "find_divergence", lambda *given, **named: None)


def elect_anybody(patch: pytest.MonkeyPatch) -> None:
    rules_of = Controller._rules_of

    def allow(self: Controller, topic: Topic) -> ElectionRules:
        return rules_of(self, topic)._replace(allows_unclean=True)

    patch.setattr(Controller, "_rules_of", allow)


def keep_new_disks_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Losses, "is_certain", lambda self, partition: False)


def believe_earlier_lives(patch: pytest.MonkeyPatch) -> None:
    """A leader takes fetches of earlier lives, and the controller takes proposals with them."""
    patch.setattr(Broker, "is_registered", lambda self, broker_id, epoch: True)
    admit_earlier_lives(patch)


def admit_earlier_lives(patch: pytest.MonkeyPatch) -> None:
    """Only the controller does not ask in which life a replica was seen to catch up."""

    def is_alive(self: Controller, replica: int, *given: object) -> bool:
        return self._image.is_alive(replica)

    patch.setattr(Controller, "_is_eligible", is_alive)


def answer_without_proof(patch: pytest.MonkeyPatch) -> None:
    async def wait(self: Partition, question: int) -> None:
        self.check_led()

    patch.setattr(Partition, "wait_proved", wait)


def compact_at_once(patch: pytest.MonkeyPatch) -> None:
    async def announce(self: Partition, *, wait_s_max: float) -> bool:
        return True

    patch.setattr(Partition, "announce_marks", announce)


def compact_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A follower does not wait until all in sync have stored the marks."""
    patch.setattr(Partition, "agreed_to", property(lambda self: self.log.cleaned_to))
