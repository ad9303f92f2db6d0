"""Rules of a replicated log that are taken out of the brokers: a named scenario finds each."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import pytest

from headwater.core_log.broker import log_cleaner
from headwater.core_log.broker.replica_fetcher import ReplicaCopy
from headwater.core_log.replication.leader import Leader
from headwater.core_log.storage.partition_log import PartitionLog
from tests.core_log.broker import test_replica_fetcher as copies
from tests.core_log.broker import test_replicas as roles
from tests.core_log.broker import test_replicated_compaction as compaction
from tests.core_log.broker.replicated import Replicated
from tests.core_log.broker.test_leadership_proofs import (
    test_a_leader_that_was_replaced_unheard_tells_no_end as replaced_unheard,
)
from tests.core_log.rule_switches import (
    answer_without_proof,
    believe_earlier_lives,
    commit_below_the_minimum,
    commit_what_the_own_disk_has,
    compact_at_once,
    compact_what_is_stored,
    keep_what_diverges,
)

Scenario = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Switch:
    """A rule, what takes it out, and the scenario that finds that."""

    rule: str
    take_out: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    is_linked: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


def tell_no_marks(patch: pytest.MonkeyPatch) -> None:
    """A follower stores none of its leader's marks of compaction."""
    note = PartitionLog.note_cleaned
    copy = ReplicaCopy._copy

    def copy_without(self: ReplicaCopy, *given: Any) -> None:
        patch.setattr(PartitionLog, "note_cleaned", lambda self, **named: None)
        try:
            copy(self, *given)
        finally:
            patch.setattr(PartitionLog, "note_cleaned", note)

    patch.setattr(ReplicaCopy, "_copy", copy_without)


def delete_without_joiners(patch: pytest.MonkeyPatch) -> None:
    def low_watermark(self: Leader, own: int) -> int:
        others = self.in_sync - {self.broker_id}
        return min([own, *(self.progress[each].start_offset for each in others)])

    patch.setattr(Leader, "low_watermark", low_watermark)


def keep_deleted_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaCopy, "_may_lack_ends", lambda self, line: False)


COMPACTED = compaction.SETTINGS
SWITCHES = (
    Switch(
        "R1",
        commit_what_the_own_disk_has,
        roles.test_a_record_is_committed_once_every_replica_in_sync_has_it,
        is_linked=False,
    ),
    Switch(
        "R2",
        commit_below_the_minimum,
        roles.test_acks_of_all_are_refused_while_too_few_are_in_sync,
        is_linked=False,
    ),
    Switch(
        "R4",
        keep_what_diverges,
        copies.test_a_deposed_leader_gives_up_what_nobody_else_had,
    ),
    Switch(
        "R7",
        believe_earlier_lives,
        roles.test_a_claim_under_another_registration_is_refused,
        is_linked=False,
    ),
    Switch("R8", answer_without_proof, replaced_unheard),
    Switch(
        "R9 marks",
        tell_no_marks,
        compaction.test_a_leader_elected_after_compaction_tells_no_lower_marks,
        settings=COMPACTED,
    ),
    Switch(
        "R9 announcement",
        compact_at_once,
        compaction.test_compaction_waits_until_all_in_sync_know_how_far_it_goes,
        settings=COMPACTED,
    ),
    Switch(
        "R9 agreement",
        compact_what_is_stored,
        compaction.test_a_follower_compacts_no_further_than_all_in_sync_know,
        settings=COMPACTED,
    ),
    Switch(
        "deleted records",
        delete_without_joiners,
        copies.test_a_request_to_delete_waits_for_a_follower_that_may_join_at_any_moment,
    ),
    Switch(
        "R9 deletes",
        keep_deleted_values,
        copies.test_a_follower_that_missed_dropped_deletes_starts_over,
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES, ids=[each.rule for each in SWITCHES])
@pytest.mark.parametrize("is_out", [False, True], ids=["rule in", "rule out"])
async def test_a_scenario_holds_with_its_rule_and_fails_without_it(
    switch: Switch, is_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Replicated(is_linked=switch.is_linked)
    await cluster.create(**switch.settings)
    given = [cluster, monkeypatch][: len(signature(switch.scenario).parameters)]
    if is_out:
        monkeypatch.setattr(copies, "TRIES_MAX", 500)
        switch.take_out(monkeypatch)
        monkeypatch.setattr(log_cleaner, "ANNOUNCEMENT_S_MAX", 0.05)
        with pytest.raises((AssertionError, AttributeError)):  # the latter where nothing is said
            await switch.scenario(*given)
    else:
        await switch.scenario(*given)
    await cluster.close()
