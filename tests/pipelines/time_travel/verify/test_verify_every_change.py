"""A table that keeps every change says that a rebuild repairs it, where no row can be written."""

from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind
from headwater.pipelines.time_travel.verify.result import ComparedSides
from headwater.pipelines.time_travel.verify.verify import Verifier
from tests.pipelines.time_travel.verify.test_verify import POLLED, execute, problems
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

APPENDED = POLLED.replace("commit_every: 0s", 'commit_every: 0s, tables: {"*": {mode: append}}')


def test_a_changed_row_of_every_change_is_left_to_a_rebuild(tmp_path: Path) -> None:
    said: list[str] = []

    async def story(world: World) -> Any:
        execute(
            tmp_path / "source.db",
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        )
        await world.run()
        execute(tmp_path / "target.db", "UPDATE t SET v = 'wrong' WHERE id = 2")
        verifier = Verifier(
            world.loaded, world.log, clock=world.clock, is_running=False, note=said.append
        )
        return await verifier.verify([await world.subject("t")], ComparedSides(), repairs=True)

    verdicts = tell(tmp_path, APPENDED, story)

    [differing] = [each for each in verdicts if not each.is_equal]
    assert problems(differing) == {DifferenceKind.CHANGED: 1} and differing.repaired == 0
    assert any("headwater rebuild" in each for each in said)
