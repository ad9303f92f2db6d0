"""The costs of the console: its process, its first page, a slide of a table to a time, and a status
of 1,000 tables."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.processes import cpu_s, pss_mb
from scripts.owned_process import start_owned

COMMAND = [sys.executable, "-m", "headwater.pipelines.cli"]
PIPELINE = """\
pipeline: shop
source: {type: generator, size: 1000, rate: 100, seed: 3}
log: {path: ./data}
sink: {type: sql, url: "sqlite:///shop.db"}
"""
PATCH_TABLES = 1_000
PATCHES = 20
SLIDES = 41
REST_S = 10.0


@contextmanager
def console(directory: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A console beside a pipeline, and its link."""
    file = directory / "pipeline.yaml"
    file.write_text(PIPELINE)
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    owner = start_owned([*COMMAND, "run", file], **quiet)
    ui = start_owned(
        [*COMMAND, "ui", "-f", file, "--listen", "127.0.0.1:0", "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ui.stdout is not None
    try:
        yield ui, ui.stdout.readline().strip()
    finally:
        for process in (ui, owner):
            process.terminate()
            process.wait()


def first_page(browser: Browser, link: str) -> tuple[Page, int, int]:
    """The page, once it shows the tables; its requests, and their bytes before any compression."""
    page = browser.new_context().new_page()
    sizes: list[int] = []

    def count(response: Any) -> None:
        if "/live" not in response.url:
            sizes.append(len(response.body()))

    page.on("response", count)
    page.goto(link)
    page.get_by_role("link", name="shop.orders").wait_for()
    page.wait_for_load_state("load")
    return page, len(sizes), sum(sizes)


def patch_ms(page: Page) -> float:
    """CPU time of the page's thread for one status of 1,000 tables, the middle of many."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.evaluate(
        """async count => {
            const { status } = await import("/static/live.js");
            window.patch = (turn) => {
                const now = structuredClone(status.value), [name] = Object.keys(now.pipelines);
                const [model] = Object.values(now.pipelines[name].tables), tables = {};
                for (let at = 0; at < count; at++) {
                    const one = structuredClone(model);
                    one.rows_per_s = (at * 7 + turn) % 100; one.lag_ms = (at + turn) % 900;
                    tables[`shop.table_${at}`] = one;
                }
                now.pipelines[name].tables = tables;
                return now;
            };
            window.put = (now) => { status.value = now; };
        }""",
        PATCH_TABLES,
    )
    found = []
    for turn in range(PATCHES):
        page.evaluate("turn => { window.next = window.patch(turn); }", turn)
        before = task_s(client)
        page.evaluate(
            "() => new Promise(done => { window.put(window.next);"
            " requestAnimationFrame(() => requestAnimationFrame(done)); })"
        )
        found.append((task_s(client) - before) * 1_000)
    return sorted(found)[len(found) // 2]


def slide_ms(page: Page) -> tuple[float, float]:
    """CPU time of the page's thread for one step of the slider of a table with 60 rows, the middle
    of many: of its scripts, and of everything, drawing in software included."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})
    scripts, whole = [], []
    for turn in range(SLIDES):
        before = task_s(client, "ScriptDuration"), task_s(client)
        page.evaluate(
            """share => new Promise(done => {
                const it = document.querySelector(".strip input");
                it.value = Number(it.min) + (Number(it.max) - Number(it.min)) * share;
                it.dispatchEvent(new Event("input", { bubbles: true }));
                requestAnimationFrame(() => requestAnimationFrame(done));
            })""",
            (turn + 1) / (SLIDES + 1),
        )
        scripts.append((task_s(client, "ScriptDuration") - before[0]) * 1_000)
        whole.append((task_s(client) - before[1]) * 1_000)
    return sorted(scripts)[SLIDES // 2], sorted(whole)[SLIDES // 2]


def task_s(client: Any, name: str = "TaskDuration") -> float:
    metrics = client.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == name))


def measure(directory: Path) -> dict[str, float]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with console(directory) as (ui, link), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page, requests, size = first_page(browser, link)
        after_overview = pss_mb(ui.pid)
        page.get_by_role("link", name="shop.orders").click()
        page.get_by_role("region", name="Rows as of the time").wait_for()
        after_table = pss_mb(ui.pid)
        slide_script, slide_whole = slide_ms(page)
        page.go_back()
        page.get_by_role("link", name="shop.orders").wait_for()
        before = cpu_s(ui.pid)
        time.sleep(REST_S)
        at_rest = (cpu_s(ui.pid) - before) / REST_S
        found = {
            "overview_requests": requests,
            "overview_kb": size / 1_000,
            "pss_after_overview_mb": after_overview,
            "pss_after_table_mb": after_table,
            "cores_with_one_page": at_rest,
            "slide_script_ms": slide_script,
            "slide_ms": slide_whole,
            "patch_of_1000_tables_ms": patch_ms(page),
        }
        browser.close()
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory))
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    main()
