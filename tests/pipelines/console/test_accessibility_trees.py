"""A page says to a reader of the screen what its tree in git says, by recorded answers."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.pipelines.console.browser_pages import console_of
from tests.pipelines.console.recorded_answers import (
    IS_WRITING,
    PAGES,
    TREES,
    Answers,
    answered,
    answers_for,
    fixed_clock,
)
from tests.pipelines.console.served_console import check_form
from tests.served_log import served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def answers(browser: Browser) -> Answers:
    return answers_for(browser)


def test_the_recorded_answers_have_the_form_of_their_routes(answers: Answers) -> None:
    for path, answer in answers.items():
        if path != "/live":
            check_form("GET", path, answer)


def test_each_page_says_what_its_tree_says(
    browser: Browser, answers: Answers, tmp_path: Path
) -> None:
    with served_log(tmp_path / "data") as served, console_of(served) as console:
        context = browser.new_context(reduced_motion="reduce", timezone_id="UTC")
        page = context.new_page()
        page.add_init_script(fixed_clock(answers))
        main = page.locator("main")
        with answered(page, answers):
            for name, path in PAGES.items():
                tree = TREES / f"{name}.yaml"
                page.goto(console.link(path))
                if IS_WRITING:
                    page.wait_for_timeout(2_000)
                    tree.write_text(main.aria_snapshot() + "\n")
                expect(main).to_match_aria_snapshot(tree.read_text())
                assert main.aria_snapshot() == tree.read_text().rstrip("\n"), name
        context.close()


def test_many_tables_are_shown_when_asked_for(
    browser: Browser, answers: Answers, tmp_path: Path
) -> None:
    [past, [kind, status]] = json.loads(json.dumps(answers["/live"]))
    tables = status["pipelines"]["shop"]["tables"]
    model = tables["shop.orders"]
    tables.clear()
    tables.update({f"shop.table_{number:02}": model for number in range(60)})
    tables["shop.held"] = {**model, "state": "quarantined", "reason": "no right"}
    many = answers | {"/live": [past, [kind, status]]}
    with served_log(tmp_path / "data") as served, console_of(served) as console:
        page = browser.new_context().new_page()
        with answered(page, many):
            page.goto(console.link("/"))
            lines = page.get_by_role("region", name="Tables of shop").locator("tbody tr")
            expect(lines).to_have_count(50)
            expect(lines.first).to_contain_text("shop.held")
            expect(page.get_by_text("11 more tables: 11 streaming")).to_be_visible()
            page.get_by_role("button", name="Show all").click()
            expect(lines).to_have_count(61)
        page.context.close()
