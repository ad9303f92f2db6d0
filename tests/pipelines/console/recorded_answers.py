"""Answers of a console that were recorded once, so that its pages say the same on every machine."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error, Page, Route, expect

from tests.budget import PATIENCE_S
from tests.pipelines.console.browser_pages import page_of
from tests.pipelines.run_process import COMMAND, start

TREES = Path(__file__).parent / "trees"
ANSWERS = TREES / "answers.json"
IS_RECORDING = os.environ.get("HEADWATER_GOLDEN") == "record"
IS_WRITING = IS_RECORDING or os.environ.get("HEADWATER_GOLDEN") == "write"
"""Whether trees and pictures are written again, of answers recorded anew or of those in git; the
diff is then the review."""
API = "/api/v1"
PAGES = {
    "overview": "/",
    "pipeline": "/pipelines/shop",
    "machine": "/pipelines/shop/tables/shop.orders?only=1&key=1",
    "graphs": "/pipelines/shop/tables/shop.orders?tab=graphs",
    "schema": "/pipelines/shop/tables/shop.orders?tab=schema",
    "topics": "/log",
    "topic": "/log/topics/shop.shop.orders?limit=20",
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
OPERATOR = os.environ | {"LOGNAME": "operator"}
CLOCK = "(() => { const at = %d; Date.now = () => at; })()"

Answers = dict[str, Any]


def fixed_clock(answers: Answers) -> str:
    """A script by which the page takes the time of the recording for now."""
    [_, [_, status]] = answers["/live"]
    return CLOCK % int(status["seen_ms"])


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
            subprocess.run([*COMMAND, "verify", "shop", "-f", file], check=True, env=OPERATOR)
            page.wait_for_function(
                "() => window.liveStatus.value.pipelines.shop.tables['shop.orders'].verified"
            )
            live = page.evaluate("() => window.liveStatus.value")
            page.on("response", lambda response: keep(answers, response))
            for path in PAGES.values():
                page.goto("about:blank")
                page.goto(f"{base}{path}#{token}")
                expect(page.locator("main h1").first).to_be_visible()
                expect(page.locator("main").get_by_text("Reading")).to_have_count(0)
                page.wait_for_timeout(1_500)
            answers["/live"] = [["past", {}], ["status", live]]
    finally:
        for process in (ui, owner):
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    text = json.dumps(answers).replace(str(directory), "/srv/shop")
    found: Answers = json.loads(text.replace(f'"{platform.node()}"', '"shop-1"'))
    return found


def keep(answers: Answers, response: Any) -> None:
    parts = urlsplit(response.url)
    path = parts.path.removeprefix(API)
    if parts.path.startswith(API) and path != "/live":
        with suppress(Error):  # the page has gone on, and asks for it again when it comes back
            answers[f"{path}?{parts.query}" if parts.query else path] = response.json()


@cache
def answers_for(browser: Browser) -> Answers:
    """Recorded anew where that is asked for, once for all modules of a process."""
    if IS_RECORDING:
        with TemporaryDirectory() as directory:
            found = recorded(browser, Path(directory))
        ANSWERS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    found = json.loads(ANSWERS.read_text())
    assert isinstance(found, dict)
    return found
