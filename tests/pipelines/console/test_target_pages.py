"""A table's page names the keys that differ, with their history, and counts a lake's files."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from headwater.pipelines.console.command_runs import keys_as_text
from tests.pipelines.console.browser_pages import check_accessible, page_of
from tests.pipelines.run_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SHOP = """\
pipeline: shop
source: {type: generator, size: 1000, rate: 20, seed: 3}
log: {path: ./data}
sink:
- {type: sql, url: "sqlite:///shop.db", commit_every: 100ms}
- {type: spark, path: lake, commit_every: 100ms}
"""


OTHERS = 10_000_000
"""The id of a row that somebody else has written to the target."""


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "pipeline.yaml"
    file.write_text(SHOP)
    with (
        running("run", file) as _,
        running("ui", "-f", file, "--listen", "127.0.0.1:0", "--no-open") as ui,
    ):
        assert ui.stdout is not None
        yield ui.stdout.readline().strip()


def test_a_comparison_names_keys_with_their_history_and_a_lake_its_files(
    browser: Browser, link: str, tmp_path: Path
) -> None:
    with page_of(browser, link) as page:
        expect(page.get_by_role("heading", name="All flows.")).to_be_visible()
        page.get_by_role("link", name="shop.orders").click()
        page.get_by_role("link", name="Target").click()
        files = page.get_by_role("region", name="Files")
        expect(files).to_be_visible()
        check_accessible(page)
        files.get_by_role("button", name="Maintain…").click()
        dialog = page.get_by_role("dialog")
        expect(
            dialog.get_by_text("headwater maintain shop/shop.orders --sink=spark")
        ).to_be_visible()
        dialog.get_by_role("button", name="Run").click()
        expect(dialog.get_by_text("done")).to_be_visible()
        dialog.get_by_role("button", name="Close").click()

        with closing(sqlite3.connect(tmp_path / "shop.db", timeout=60)) as target:
            names = [row[1] for row in target.execute('PRAGMA table_info("orders")')]
            values = ", ".join(str(OTHERS) if name == "id" else f'"{name}"' for name in names)
            target.execute(f'INSERT INTO "orders" SELECT {values} FROM "orders" LIMIT 1')
            target.commit()
        page.get_by_role("link", name="Verification").last.click()
        page.get_by_role("button", name="Verify…").click()
        dialog.get_by_role("button", name="Run").click()
        keys = dialog.get_by_role("region", name="Keys of shop.orders in sql that differ")
        expect(keys).to_contain_text("is not in the log")
        check_accessible(page)
        keys.get_by_role("link", name=f'{{"id":{OTHERS}}}').click()
        expect(
            page.get_by_role("heading", name="The log has no change of this key")
        ).to_be_visible()
        expect(dialog).to_have_count(0)


def test_a_key_that_a_browser_would_round_is_text() -> None:
    key = {"id": (1 << 63) - 1}
    compared = {"table": "shop.orders", "keys": [{"key": key, "problem": "is missing"}]}

    shown = keys_as_text({"tables": [compared, {"table": "other", "problem": "gone"}]})

    [first, other] = shown["tables"]
    [told] = first["keys"]
    assert isinstance(told["key"], str) and json.loads(told["key"]) == key
    assert told["problem"] == "is missing" and "keys" not in other
