"""A browser for the pages of the console."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Its loop runs in this thread, so a module has either a browser or asynchronous tests."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "scripts/chromium.sh installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
