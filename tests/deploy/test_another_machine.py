"""A pipeline that is stopped and copied goes on elsewhere, and its former directory is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.databases import Guest, database_in
from tests.pipelines.conftest import headwater as headwater

FILE = """
pipeline: moved
source: {{type: postgres, url: "{source}", tables: [public.orders]}}
sink:
- {{type: spark, path: lake}}
- {{type: sql, name: files, url: "sqlite:///target.db"}}
- {{type: sql, name: server, url: "{target}"}}
"""


@pytest.mark.slow
def test_a_copied_directory_goes_on_and_the_former_one_is_refused(
    guest: Guest, postgres: str, tmp_path: Path, headwater: Any
) -> None:
    former, later = tmp_path / "former/headwater", tmp_path / "later/headwater"
    former.mkdir(parents=True)
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        "INSERT INTO orders SELECT i, 'a' FROM generate_series(1, 100) i",
    )
    guest.publish("orders", name="headwater_moved")
    with database_in(postgres, "moved_target") as target:
        (former / "pipeline.yaml").write_text(FILE.format(source=guest.url, target=target))
        begun = headwater("run", "--once", former / "pipeline.yaml")
        guest.execute("DELETE FROM orders WHERE id > 90", "UPDATE orders SET v = 'b' WHERE id < 9")
        shutil.copytree(former, later)
        moved = headwater("run", "--once", later / "pipeline.yaml")
        verified = headwater("verify", "moved", "--json", "-f", later / "pipeline.yaml")
        guest.execute("INSERT INTO orders VALUES (1000, 'c')")
        again = headwater("run", "--once", former / "pipeline.yaml")
        after = headwater("run", "--once", later / "pipeline.yaml")
        last = headwater("verify", "moved", "--json", "-f", later / "pipeline.yaml")

    assert (begun.code, moved.code, after.code) == (0, 0, 0)
    for each in (verified, last):
        sides = each.envelope["data"]["tables"]
        assert {side["side"] for side in sides} == {"source", "spark", "files", "server"}
        assert all(side["equal"] for side in sides)
    assert again.code == exit_codes.DIFFERENT
    assert "moved/source is quarantined: the slot stands at" in again.remarks
    assert "moved/server is quarantined: the target is ahead of the log" in again.remarks
