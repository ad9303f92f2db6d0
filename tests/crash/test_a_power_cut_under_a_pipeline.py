"""A power cut under the disk of the log and of the targets leaves a pipeline that ends equal."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.budget import PATIENCE_S
from tests.crash.broker_faults import PowerCut, why_no_power_cuts
from tests.crash.history import Plan
from tests.databases import Guest
from tests.pipelines.run_process import COMMAND, start

PLAN = Plan.from_environment("HEADWATER_PIPELINE_POWER_CUTS", short=2, long=30)
WHY_NOT = why_no_power_cuts()
FILE = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.items, public.notes]}}
sink:
- {{type: sql, url: "sqlite:///target.db", commit_every: 100ms}}
- {{type: spark, path: lake, commit_every: 100ms}}
- {{type: files, path: exported, format: jsonl, commit_every: 100ms}}
"""


@pytest.fixture
def disk(tmp_path: Path, seed: int) -> Iterator[PowerCut]:
    cut = PowerCut(tmp_path, Random(seed))
    try:
        yield cut
    finally:
        cut.close()


@pytest.mark.crash
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.parametrize("seed", PLAN.seeds(), ids=PLAN.names())
def test_a_power_cut_under_log_and_targets_ends_with_all_sides_equal(
    seed: int, disk: PowerCut, guest: Guest, tmp_path: Path
) -> None:
    random, place = Random(seed), disk.data()
    for table in ("items", "notes"):
        guest.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
    guest.publish("items", "notes")
    place.mkdir()
    (place / "pipeline.yaml").write_text(FILE.format(url=guest.url))
    os.sync()

    for _ in range(PLAN.crashes_each):
        run = start("run", place / "pipeline.yaml", "-q")
        until = time.monotonic() + random.uniform(4, 8)
        try:
            while time.monotonic() < until:
                change(guest, random)
                assert run.poll() is None, run.communicate()
        finally:
            os.killpg(run.pid, signal.SIGSTOP)
            disk.cut()
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=PATIENCE_S)
        disk.mount_again()
        change(guest, random)
    told = command(place, "run", "--once", "pipeline.yaml")
    verified = command(place, "verify", "shop", "-f", "pipeline.yaml")

    assert "quarantined" not in told
    assert "equal" in verified and guest.value("SELECT count(*) FROM items")


def change(guest: Guest, random: Random) -> None:
    """One transaction over both tables."""
    key = random.randrange(200)
    guest.execute(
        f"""
        WITH one AS (INSERT INTO items VALUES ({key}, 'a') ON CONFLICT (id) DO UPDATE
                SET v = items.v || '{key % 7}'),
            two AS (DELETE FROM notes WHERE id = {key + 1})
        INSERT INTO notes VALUES ({key}, 'b') ON CONFLICT (id) DO UPDATE SET v = notes.v || 'c'
        """
    )


def command(place: Path, *arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
