"""Whatever is killed, paused or started twice, a pipeline brings every change into its target once,
and the target ends as the database is."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.client import KafkaLog
from headwater.sinks.sink import Slice
from tests.pipelines.pipeline_in_memory import MemorySink
from tests.simulation.pipeline_world import PipelineWorld, play_pipeline

pytestmark = pytest.mark.simulation

HISTORIES = max(2, settings().max_examples // 100)
SHORT_S = 3.0
TRIES_MAX = 20


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Thousands of faults are expected here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_no_history_of_a_pipeline_loses_or_repeats_a_change(seed: int) -> None:
    world = play_pipeline(seed, virtual_s=SHORT_S)

    assert not world.problems, "\n".join([*world.said, *world.problems])


def problems_of_some(*faults: Any) -> list[str]:
    """Of the first history in which something is found, of pipelines with only these faults."""
    for seed in range(TRIES_MAX):
        world = play_pipeline(seed, virtual_s=SHORT_S, faults=faults)
        if world.problems:
            return world.problems
    return []


def test_a_sink_that_does_not_compare_its_offsets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = MemorySink.apply

    async def apply_anyhow(self: MemorySink, part: Slice) -> None:
        self.target.offsets = dict(part.start)
        await apply(self, part)

    monkeypatch.setattr(MemorySink, "apply", apply_anyhow)

    assert problems_of_some(PipelineWorld.run_a_task_twice)


def test_a_source_that_fences_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, names = KafkaLog.writer, iter(range(1_000_000))

    async def other_writer(self: KafkaLog, name: str) -> Any:
        return await writer(self, f"{name}-{next(names)}")

    monkeypatch.setattr(KafkaLog, "writer", other_writer)

    assert problems_of_some(PipelineWorld.run_a_task_twice)
