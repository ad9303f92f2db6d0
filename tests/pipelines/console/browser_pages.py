"""Pages of a console in a real browser, which may complain of nothing."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, expect

from headwater.pipelines.console.console_server import ConsoleServer
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.file.http_settings import HttpSettings
from tests.pipelines.console.served_console import sources_of
from tests.served_log import ServedLog

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
NARROW, WIDE = 390, 1440
[AXE] = [
    each.read_text() for each in Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")
]


@contextmanager
def page_of(browser: Browser, link: str) -> Iterator[Page]:
    """A page that may complain of nothing, and ask nobody else for anything."""
    context = browser.new_context(reduced_motion="reduce", viewport={"width": WIDE, "height": 900})
    complaints: list[str] = []
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    origin = "/".join(link.split("/")[:3])
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((origin, "data:")) else complaints.append(request.url)
        ),
    )
    page.goto(link)
    yield page
    context.close()
    assert not complaints, complaints


def check_accessible(page: Page) -> None:
    """In both colour schemes, and on a narrow page, which may not scroll sideways."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations_of(page) == [], scheme
    page.set_viewport_size({"width": NARROW, "height": 800})
    assert violations_of(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    page.set_viewport_size({"width": WIDE, "height": 900})


def violations_of(page: Page) -> object:
    """From outside the page, whose policy lets it run no other script."""
    client = page.context.new_cdp_session(page)
    found = client.send(
        "Runtime.evaluate",
        {
            "expression": f"{AXE};axe.run().then(r => JSON.stringify(r.violations.map("
            "v => [v.id, v.nodes.map(n => n.target.join(' '))])))",
            "awaitPromise": True,
            "returnByValue": True,
        },
    )
    client.detach()
    return json.loads(found["result"]["value"])


@dataclass(frozen=True)
class ShownConsole:
    server: ConsoleServer

    def link(self, path: str) -> str:
        base, _, token = self.server.link.partition("/#")
        return f"{base}{path}#{token}"


@contextmanager
def console_of(
    served: ServedLog, *, hidden: HiddenColumns = NOTHING_HIDDEN
) -> Iterator[ShownConsole]:
    """A console on the loop of that log, which no pipeline runs."""
    address = f"--bootstrap={served.log.bootstrap[0]}"
    sources = sources_of(served.log, hidden=hidden, arguments=(address,))
    tasks: list[asyncio.Future[None]] = []
    server = ConsoleServer(HttpSettings(listen="127.0.0.1:0"))

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(server.serve(sources)))

    async def end() -> None:
        tasks[0].cancel()
        await asyncio.wait(tasks)

    served.run(begin)
    try:
        yield ShownConsole(server)
    finally:
        served.run(end)
