"""A page says to a reader of the screen what its tree in git says, by recorded answers."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.pipelines.console.browser_pages import console_of, page_of
from tests.pipelines.console.served_console import check_form
from tests.pipelines.run_process import PATIENCE_S, start
from tests.served_log import served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TREES = Path(__file__).parent / "trees"
ANSWERS = TREES / "answers.json"
IS_WRITING = os.environ.get("HEADWATER_GOLDEN") == "write"
"""Whether answers are recorded anew and trees are written; the diff is then the review."""
API = "/api/v1"
PAGES = {
    "overview": "/",
    "pipeline": "/pipelines/shop",
    "graphs": "/pipelines/shop/tables/shop.orders?tab=graphs",
    "schema": "/pipelines/shop/tables/shop.orders?tab=schema",
    "topics": "/log",
    "groups": "/log/groups",
    "group": "/log/groups/headwater.shop.sql",
    "letters": "/letters",
    "verification": "/verification",
    "runs": "/verification/runs",
    "cluster": "/cluster",
    "audit": "/audit",
}
SHOP = """\
pipeline: shop
source: {type: generator, size: 1000, total: 2000, rate: 0, seed: 3}
log: {path: ./data}
sink: {type: sql, url: "sqlite:///shop.db"}
"""
CLOCK = "(() => { const at = %d; Date.now = () => at; })()"

Answers = dict[str, Any]


@contextmanager
def answered(page: Page, answers: Answers) -> Iterator[None]:
    """The page gets these answers, and a live stream that says one thing and stays open."""

    def answer(route: Route) -> None:
        parts = urlsplit(route.request.url)
        path = parts.path.removeprefix(API)
        key = f"{path}?{parts.query}" if parts.query else path
        if path == "/live":
            events = answers["/live"]
            body = "".join(f"event: {kind}\ndata: {json.dumps(what)}\n\n" for kind, what in events)
            route.fulfill(body=body, content_type="text/event-stream")
        elif key in answers:
            route.fulfill(json=answers[key])
        else:
            route.abort()
            raise AssertionError(f"no answer is recorded for {key}")

    page.route(f"**{API}/**", answer)
    yield
    page.unroute_all(behavior="wait")


def recorded(browser: Browser, directory: Path) -> Answers:
    """The answers of a console beside a pipeline, by their paths."""
    file = directory / "pipeline.yaml"
    file.write_text(SHOP)
    answers: Answers = {}
    owner = start("run", file)
    ui = start("ui", "-f", file, "--listen", "127.0.0.1:0", "--no-open")
    try:
        assert ui.stdout is not None
        link = ui.stdout.readline().strip()
        base, _, token = link.partition("/#")
        with page_of(browser, link) as page:
            expect(page.get_by_role("link", name="shop.orders")).to_be_visible()
            page.evaluate(
                "async () => { const live = await import('/static/live.js');"
                "window.liveStatus = live.status; }"
            )
            page.wait_for_function(
                "() => window.liveStatus.value.pipelines.shop"
                "?.tables['shop.orders']?.tasks.sql?.rows > 500"
            )
            live = page.evaluate("() => window.liveStatus.value")
            page.on("response", lambda response: keep(answers, response))
            for path in PAGES.values():
                page.goto(f"{base}{path}#{token}")
                page.reload()
                page.wait_for_load_state("load")
                expect(page.locator("main h1").first).to_be_visible()
                page.wait_for_timeout(1_500)
            answers["/live"] = [["past", {}], ["status", live]]
    finally:
        for process in (ui, owner):
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    found: Answers = json.loads(json.dumps(answers).replace(str(directory), "/srv/shop"))
    return found


def keep(answers: Answers, response: Any) -> None:
    parts = urlsplit(response.url)
    path = parts.path.removeprefix(API)
    if parts.path.startswith(API) and path != "/live":
        answers[f"{path}?{parts.query}" if parts.query else path] = response.json()


@pytest.fixture(scope="module")
def answers(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    if IS_WRITING:
        TREES.mkdir(exist_ok=True)
        found = recorded(browser, tmp_path_factory.mktemp("shop"))
        ANSWERS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    found = json.loads(ANSWERS.read_text())
    assert isinstance(found, dict)
    return found


def test_the_recorded_answers_have_the_form_of_their_routes(answers: Answers) -> None:
    for path, answer in answers.items():
        if path != "/live":
            check_form("GET", path, answer)


def test_each_page_says_what_its_tree_says(
    browser: Browser, answers: Answers, tmp_path: Path
) -> None:
    [_, [_, status]] = answers["/live"]
    with served_log(tmp_path / "data") as served, console_of(served) as console:
        context = browser.new_context(reduced_motion="reduce", timezone_id="UTC")
        page = context.new_page()
        page.add_init_script(CLOCK % status["seen_ms"])
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
