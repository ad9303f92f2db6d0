"""The pages in a real browser: what they say is so, and the browser has nothing to complain of."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from headwater.pipelines.console.console_server import WEB
from tests.pipelines.console.browser_pages import (
    check_accessible,
    console_of,
    page_of,
)
from tests.pipelines.pipeline_in_memory import tables_of
from tests.pipelines.run_process import COMMAND, start
from tests.served_log import served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SHOP = """\
pipeline: shop
source: {type: generator, size: 1000, rate: 20, seed: 3}
log: {path: ./data}
sink: {type: sql, url: "sqlite:///shop.db"}
"""
HOSTILE = "<img src=x onerror=\"document.title='taken'\"> \u202etxt.exe"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Any]]:
    """A pipeline that runs, and the link of its console."""
    directory = tmp_path_factory.mktemp("shop")
    file = directory / "pipeline.yaml"
    file.write_text(SHOP)
    owner = start("run", file)
    ui = start("ui", "-f", file, "--listen", "127.0.0.1:0", "--no-open")
    try:
        assert ui.stdout is not None
        yield file, ui.stdout.readline().strip(), owner
    finally:
        for process in (ui, owner):
            process.kill()
            process.communicate()


def test_a_newcomer_sees_what_was_and_which_transaction_made_it_so(
    browser: Browser, shop: tuple[Path, str, Any]
) -> None:
    file, link, owner = shop
    with page_of(browser, link) as page:
        expect(page.get_by_role("heading", name="All flows.")).to_be_visible()
        assert "#" not in page.url, "the secret is not left in the address"
        check_accessible(page)

        page.get_by_role("link", name="shop.orders").click()
        expect(page.get_by_role("region", name="Rows as of the time")).to_be_visible()
        check_accessible(page)
        moment = page.get_by_role("slider", name="Time")
        low, high = (float(moment.get_attribute(name) or 0) for name in ("min", "max"))
        page.evaluate(
            "ms => { const it = document.querySelector('.strip input'); it.value = ms;"
            "it.dispatchEvent(new Event('input', {bubbles: true})); }",
            (low + 3 * high) / 4,
        )
        command = page.locator(".then .command").inner_text().split()
        page.wait_for_function(
            "([at]) => document.querySelector('.then .command').innerText.includes(at)",
            arg=[command[-1][:16]],
        )
        _, _, _, key, _, at = page.locator(".then .command").inner_text().split()
        shown = page.locator(".rows tr.chosen td").all_inner_texts()
        is_there = "none" not in (page.locator(".rows tr.chosen").get_attribute("class") or "")
        told = subprocess.run(
            [*COMMAND, "--json", "rows", "shop/shop.orders", key, "--as-of", at, "-f", str(file)],
            capture_output=True,
            text=True,
            check=True,
        )
        changes = json.loads(told.stdout)["data"]["changes"]
        row = changes[0]["row"] if changes else None
        assert is_there == bool(changes)
        if row is not None:
            assert shown == ["null" if value is None else str(value) for value in row.values()]

        page.locator(".steps .step").first.click()
        expect(page.get_by_role("region", name="Rows of the transaction")).to_be_visible()
        assert page.locator(".trace tbody tr").count() >= 1
        check_accessible(page)

        verify_and_rebuild(page)

        page.get_by_role("link", name="shop", exact=True).click()
        expect(page.get_by_role("region", name="Tasks")).to_be_visible()
        check_accessible(page)

        kill_and_heal(page, file, owner)


def verify_and_rebuild(page: Page) -> None:
    """From the table's page, by its dialogs."""
    page.get_by_role("link", name="Graphs").click()
    expect(page.get_by_role("img", name="Rows per second")).to_be_visible()
    check_accessible(page)
    page.get_by_role("link", name="Schema").click()
    expect(page.get_by_role("region", name="Columns of schema 1")).to_be_visible()
    check_accessible(page)
    page.get_by_role("link", name="Verification").last.click()
    page.get_by_role("button", name="Verify…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run").click()
    expect(dialog.get_by_text("done")).to_be_visible()
    expect(dialog.get_by_role("cell", name="equal").first).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text("equal").first).to_be_visible()
    page.get_by_role("button", name="Rebuild…").click()
    dialog.get_by_role("checkbox", name="Compare the copy").check()
    dialog.get_by_role("checkbox", name="Swap the copy in").check()
    typed = dialog.get_by_role("textbox", name="to run it")
    expect(typed).to_be_visible()
    expect(dialog.get_by_role("list", name="Plan")).to_contain_text("swap the copy in")
    expect(dialog.get_by_role("button", name="Run")).to_be_disabled()
    check_accessible(page)
    typed.fill("shop/shop.orders")
    dialog.get_by_role("button", name="Run").click()
    expect(dialog.get_by_text("the copy equals the log")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()


def kill_and_heal(page: Page, file: Path, owner: Any) -> None:
    page.get_by_role("link", name="Pipelines").first.click()
    os.kill(owner.pid, signal.SIGKILL)
    expect(page.get_by_text("does not answer")).to_be_visible()
    expect(page.get_by_role("heading", name="No pipeline is running.")).to_be_visible()
    again = start("run", file)
    try:
        expect(page.get_by_role("heading", name="All flows.")).to_be_visible()
    finally:
        again.kill()
        again.communicate()


def test_hostile_values_are_text(browser: Browser, tmp_path: Path) -> None:
    with served_log(tmp_path / "data") as served:
        served.write(
            tables_of([("orders", "c", (1 << 53) + 1, HOSTILE)], commit=1),
            tables_of([("orders", "c", 2, "plain")], commit=2),
        )
        path = "/pipelines/shop/tables/public.orders"
        with console_of(served) as console, page_of(browser, console.link(path)) as page:
            cells = page.locator(".rows td")
            expect(cells.first).to_be_visible()
            assert str((1 << 53) + 1) in cells.all_inner_texts(), "a browser rounds such numbers"
            assert page.locator(".rows img").count() == 0
            assert any("onerror" in text for text in cells.all_inner_texts())
            assert "orders" in page.title()


CASES = """async () => {
  const w = await import("/static/words.js"), g = await import("/static/pages/graphs.js");
  const change = (visible_ms, offset, key, row) => ({ visible_ms, offset, key, row, partition: 0 });
  const changes = [change(10, 0, "a", ["1"]), change(20, 1, "a", null), change(30, 2, "a", ["2"])];
  const truncate = change(20, 1, null, null);
  const keys = w.byKey([change(10, 0, "a", ["1"]), truncate, change(30, 2, "b", ["2"])]);
  return {
    shown: [5, 10, 19, 20, 35].map((at) => w.shownAt(changes, at)),
    keys: keys.map((each) => [each.key, each.changes.map((c) => c.offset)]),
    changed: w.changedColumns(["a", "b", "c"], ["1", null, "3"], ["1", "2", "4"]),
    sides: [
      w.bothSides({ log: { id: "1", v: "a" }, there: { id: "1", v: null } }),
      w.bothSides({ log: { id: "1" }, there: null }), w.bothSides({ log: null, there: null }),
    ].map((each) => each.map((parts) => parts.map((part) => part ?? String(part)))),
    parts: [["7", 1], ["7,abc", 2], ['["x, y","z"]', 2], ['["7"]', 1], ["[1", 1]]
      .map((each) => w.keyParts(...each)),
    commands: ["7,abc", "-5", "it's", ""].map((key) => w.rowsCommand("shop/a", key, "0Z")),
    spans: [12, 1500, 65_000, 3_700_000, 90_000_000].map(w.span),
    clear: [w.toClearMs(1000, 10, 60), w.toClearMs(1000, 60, 10), w.toClearMs(0, 0, 5)],
    at: [null, 5, 10, 25].map((ms) => g.indexAt([10, 20, 30], ms)),
    path: g.pathOf([0, 1, 2, 9, 10], [0, 10, null, 5, 5],
      { from: 0, spanMs: 10, everyMs: 1, top: 10 }),
    bytes: [5, 1500, 3_100_000_000].map(w.bytes),
    tones: ["streaming", "quarantined", "never heard of"].map(w.tone),
  };
}"""


def test_the_words_of_the_pages(browser: Browser) -> None:
    page = browser.new_page()
    page.route(
        "http://words.test/**",
        lambda route: route.fulfill(
            body=(WEB / route.request.url.rpartition("/static/")[2]).read_text()
            if "/static/" in route.request.url
            else "<html></html>",
            content_type="text/javascript" if "/static/" in route.request.url else "text/html",
        ),
    )
    page.goto("http://words.test/")

    assert page.evaluate(CASES) == {
        "shown": [-1, 0, 0, 1, 2],
        "keys": [["a", [0, 1]], ["b", [1, 2]]],
        "changed": ["b", "c"],
        "sides": [[["v", "a", "null"]], [["id", "1", "undefined"]], []],
        "parts": [["7"], ["7", "abc"], ["x, y", "z"], ["7"], ["[1"]],
        "commands": [
            "headwater rows shop/a 7,abc --as-of 0Z",
            "headwater rows shop/a --as-of 0Z -- -5",
            "headwater rows shop/a 'it'\\''s' --as-of 0Z",
            "headwater rows shop/a '' --as-of 0Z",
        ],
        "spans": ["12 ms", "1.5 s", "1 min", "1 h 1 min", "1 d"],
        "clear": [20_000, None, None],
        "at": [2, -1, 0, 1],
        "path": "M0.0 92.0L100.0 2.0M900.0 47.0L1000.0 47.0",
        "bytes": ["5 B", "1.5 KB", "3.1 GB"],
        "tones": ["ok", "bad", "idle"],
    }
    page.close()
