"""The pages of the log in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.console.hidden_columns import HiddenColumns
from tests.pipelines.console.browser_pages import (
    ShownConsole,
    check_accessible,
    console_of,
    page_of,
)
from tests.pipelines.pipeline_in_memory import tables_of
from tests.served_log import ServedLog, served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, GROUP = "shop.public.orders", "headwater.shop.sink"
HOSTILE = "<img src=x onerror=\"document.title='taken'\"> \u202etxt.exe \x00"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "data") as log:
        log.write(
            tables_of([("orders", "c", key, f"value {key}") for key in range(70)], commit=1),
            tables_of([("orders", "u", 7, HOSTILE), ("orders", "d", 8, "")], commit=2),
        )
        place = TopicPartition(TOPIC, 0)
        log.run(lambda: log.log.commit_offsets(GROUP, {place: 5}))
        yield log


@pytest.fixture
def console(served: ServedLog) -> Iterator[ShownConsole]:
    hidden = HiddenColumns({"shop": ["public.items.value"]})
    with console_of(served, hidden=hidden) as console:
        yield console


def test_a_person_finds_a_message_of_a_topic(
    browser: Browser, console: ShownConsole, served: ServedLog
) -> None:
    with page_of(browser, console.link("/log")) as page:
        expect(page.get_by_role("link", name=TOPIC)).to_be_visible()
        check_accessible(page)
        page.get_by_role("link", name=TOPIC).click()
        records = page.get_by_role("list", name="Messages found").get_by_role("listitem")
        expect(records).to_have_count(50)
        assert page.locator(".records img").count() == 0 and "taken" not in page.title()
        page.get_by_role("button", name="Look further back").click()
        expect(records).to_have_count(73)

        page.get_by_label("Key").fill("7")
        page.get_by_role("button", name="Search").click()
        expect(records).to_have_count(2)
        records.first.get_by_role("button").click()
        expect(page.get_by_text("Committed at the source")).to_be_visible()
        expect(page.get_by_label("Value as stored")).to_contain_text("onerror")
        check_accessible(page)
        assert "key=7" in page.url

        page.get_by_role("button", name="Follow live").click()
        expect(page.get_by_text("following: 0 shown")).to_be_visible()
        served.write(tables_of([("orders", "c", 700, "new"), ("orders", "u", 7, "x")], commit=3))
        expect(records).to_have_count(1)
        expect(page.get_by_text("following: 1 shown")).to_be_visible()

        page.get_by_role("link", name="Log").first.click()
        page.get_by_role("link", name="Consumer groups").click()
        expect(page.get_by_role("link", name=GROUP)).to_be_visible()
        check_accessible(page)
        page.get_by_role("link", name=GROUP).click()
        expect(page.get_by_role("cell", name="5", exact=True)).to_be_visible()
        check_accessible(page)
        reset_to_the_beginning(page)

        page.get_by_role("link", name="Cluster").click()
        expect(page.get_by_role("heading", name="One broker has the log.")).to_be_visible()
        expect(page.get_by_role("cell", name="leader")).to_be_visible()
        check_accessible(page)


def reset_to_the_beginning(page: Page) -> None:
    page.get_by_role("button", name="Reset…").click()
    dialog = page.get_by_role("dialog")
    typed = dialog.get_by_role("textbox", name="to run it")
    expect(typed).to_be_visible()
    check_accessible(page)
    typed.fill(GROUP)
    dialog.get_by_role("button", name="Run").click()
    expect(dialog.get_by_text("done")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("cell", name="5", exact=True)).to_have_count(0)
    expect(page.get_by_role("cell", name="0", exact=True).first).to_be_visible()
