"""A person who compares a table sees each value that differs beside that of the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.pipelines.console.browser_pages import check_accessible, page_of
from tests.pipelines.run_process import start
from tests.pipelines.time_travel.verify.test_verify import execute

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COPY = """\
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: [items]}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
CONSOLE
"""
KEYS = "Keys of items in sql that differ"
LARGE = (1 << 53) + 1
NONE = "\u2013"
"""How a side without the row is shown."""


def link_of(directory: Path, more: str = "") -> Iterator[str]:
    """The console over a log at rest, whose target somebody else has changed."""
    execute(
        directory / "source.db",
        "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price TEXT)",
        f"INSERT INTO items VALUES (1, 'one', '1.5'), (2, 'two', '2.5'), ({LARGE}, 'three', '3.5')",
    )
    file = directory / "pipeline.yaml"
    file.write_text(COPY.replace("CONSOLE", more))
    with start("run", file, "--once", "-q") as run:
        assert run.wait() == 0, run.stderr and run.stderr.read()
    execute(
        directory / "target.db",
        "UPDATE items SET price = '<b>9</b>' WHERE id = 1",
        f"DELETE FROM items WHERE id = {LARGE}",
        "INSERT INTO items VALUES (7, 'seven', NULL)",
    )
    ui = start("ui", "-f", file, "--listen", "127.0.0.1:0", "--no-open")
    try:
        assert ui.stdout is not None
        yield ui.stdout.readline().strip().replace("/#", "/pipelines/copy/tables/items?tab=verify#")
    finally:
        ui.kill()
        ui.communicate()


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    yield from link_of(tmp_path)


@pytest.fixture
def hiding_link(tmp_path: Path) -> Iterator[str]:
    yield from link_of(tmp_path, "console: {hide: [items.price]}")


def test_each_differing_key_is_shown_side_by_side_in_the_dialog_and_on_the_page(
    browser: Browser, link: str
) -> None:
    wanted = [
        ['{"id":1}', "has other values", "price", "1.5", "<b>9</b>"],
        ['{"id":7}', "is not in the log", "id", NONE, "7"],
        ["", "", "name", NONE, "seven"],
        ["", "", "price", NONE, "null"],
        [f'{{"id":{LARGE}}}', "is missing", "id", str(LARGE), NONE],
        ["", "", "name", "three", NONE],
        ["", "", "price", "3.5", NONE],
    ]
    with page_of(browser, link) as page:
        page.get_by_role("button", name="Verify…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Run").click()
        sides = dialog.get_by_role("region", name=KEYS)
        expect(sides).to_be_visible()
        check_accessible(page)
        told = [row.locator("th, td").all_inner_texts() for row in sides.locator("tbody tr").all()]
        dialog.get_by_role("button", name="Close").click()
        kept = page.get_by_role("region", name=KEYS)
        expect(kept).to_be_visible()
        check_accessible(page)

    assert told == wanted


def test_no_value_is_shown_beside_another_where_a_column_is_hidden(
    browser: Browser, hiding_link: str
) -> None:
    with page_of(browser, hiding_link) as page:
        page.get_by_role("button", name="Verify…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Run").click()
        expect(dialog.get_by_text("3 differ")).to_be_visible()
        said = dialog.inner_text()

    assert "has other values" not in said
    assert "<b>9</b>" not in said and "seven" not in said
