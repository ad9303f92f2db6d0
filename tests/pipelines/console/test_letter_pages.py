"""The pages of dead letters, runs and the audit in a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.pipelines.console.browser_pages import (
    check_accessible,
    console_of,
    page_of,
)
from tests.pipelines.console.test_letters_and_runs import PROBLEM, set_aside
from tests.pipelines.pipeline_in_memory import tables_of
from tests.served_log import served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_person_redrives_a_dead_letter(browser: Browser, tmp_path: Path) -> None:
    with served_log(tmp_path / "data") as served:
        served.write(tables_of([("orders", "c", key, "x") for key in range(3)], commit=1))
        served.run(lambda: set_aside(served))
        with console_of(served) as console, page_of(browser, console.link("/letters")) as page:
            expect(page.get_by_role("cell", name=PROBLEM)).to_be_visible()
            check_accessible(page)
            page.get_by_role("link", name="public.orders").click()
            page.get_by_role("link", name="#2").click()
            expect(page.get_by_text("would put it back")).to_be_visible()
            check_accessible(page)

            page.get_by_role("button", name="Redrive…").click()
            dialog = page.get_by_role("dialog", name="Redrive the dead letter")
            expect(dialog.get_by_role("list", name="Plan")).to_contain_text("#2 redriven")
            check_accessible(page)
            dialog.get_by_role("button", name="Run").click()
            expect(dialog.get_by_text("1 redriven")).to_be_visible()
            dialog.get_by_role("button", name="Close").click()

            page.get_by_role("link", name="Who did what").click()
            expect(page.get_by_role("cell", name="dlq redrive")).to_be_visible()
            check_accessible(page)
            page.get_by_role("link", name="Verification").click()
            page.get_by_role("link", name="Runs").click()
            expect(page.get_by_role("region", name="redrive shop")).to_be_visible()
            check_accessible(page)
