"""The console answers its own page, and no other page that a browser has open."""

import hashlib
import re
from collections.abc import AsyncIterator

import pytest
from pydantic import ValidationError

from headwater.pipelines.console.console_server import ROUTES, WEB, ConsoleServer
from headwater.pipelines.file.http_settings import HttpSettings
from tests.memory_log import MemoryLog
from tests.pipelines.console.served_console import ServedConsole, served_console, sources_of

API = "/api/v1/session"
VENDOR = WEB / "vendor"
IMPORTED = re.compile(r"""(?:from|import)\s*"(\.[^"]+)\"""")


@pytest.fixture
async def console() -> AsyncIterator[ServedConsole]:
    async with served_console(sources_of(MemoryLog())) as served:
        yield served


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 200),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Host": "attacker.example"}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_the_api_answers_only_the_page_that_has_the_token(
    console: ServedConsole, changed: dict[str, str], status: int
) -> None:
    found, _, _ = await console.raw("GET", API, console.good | changed)

    assert found == status


@pytest.mark.parametrize("path", ["/", "/pipelines/shop/tables/public.orders", "/static/app.js"])
async def test_the_page_needs_no_token_but_the_right_host(
    console: ServedConsole, path: str
) -> None:
    status, content, headers = await console.raw("GET", path, {"Host": console.address})
    other, _, _ = await console.raw("GET", path, {"Host": "attacker.example"})

    assert status == 200 and content
    assert other == 403
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../console_server.py",
        "/static/%2e%2e/console_server.py",
        "/static//etc/passwd",
        "/static/vendor/README.md",
        "/static/pages",
        "/static/%00.js",
        f"/static/{'a' * 300}.js",
        "/nothing-is-here",
    ],
)
async def test_no_other_file_is_served(console: ServedConsole, path: str) -> None:
    status, content, _ = await console.raw("GET", path, {"Host": console.address})

    assert status == 404 and b"import" not in content


async def test_a_read_only_console_has_no_route_for_signals() -> None:
    async with served_console(sources_of(MemoryLog(), is_read_only=True)) as console:
        for path in ("pause", "resume/public.orders", "restart"):
            status, _, _ = await console.raw("POST", f"/api/v1/pipelines/shop/{path}", console.good)
            assert status == 404
        assert (await console.ask("/session")) == {"is_read_only": True}
    assert all(each.is_look == (each.method == "GET") for each in ROUTES)
    assert any(not each.is_look for each in ROUTES)


async def test_a_signal_without_a_running_pipeline_is_refused(console: ServedConsole) -> None:
    status, content, _ = await console.raw("POST", "/api/v1/pipelines/shop/pause", console.good)

    assert status == 503 and b"no pipeline is running on this log" in content


def test_an_address_beyond_loopback_is_refused() -> None:
    with pytest.raises(ValidationError, match="beyond loopback"):
        ConsoleServer(HttpSettings(listen="0.0.0.0:0"))


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script() -> None:
    page = (WEB / "index.html").read_text()

    assert "http://" not in page and "https://" not in page and "style=" not in page
    for script in page.split("<script")[1:]:
        assert script.split(">")[1].startswith("</script")


def test_every_file_that_the_modules_import_is_there() -> None:
    for module in [*WEB.glob("*.js"), *WEB.glob("pages/*.js"), *WEB.glob("vendor/*.mjs")]:
        for name in IMPORTED.findall(module.read_text()):
            assert (module.parent / name).is_file(), f"{module.name} imports {name}"


def test_every_library_is_what_the_lock_file_brought() -> None:
    rows = [line.split("|") for line in (VENDOR / "README.md").read_text().splitlines()]
    named = {row[1].strip(): row[5].strip().rstrip("…") for row in rows if len(row) > 5}
    files = {each.name for each in VENDOR.iterdir()} - {"README.md"}

    assert files == named.keys() - {"File", "---"}
    for name in files:
        digest = hashlib.sha512((VENDOR / name).read_bytes()).hexdigest()
        assert digest.startswith(named[name]), f"{name} is not what `make web` has written"
