"""A fixed HTTP address: the same after every start, for those with the token of its file."""

import asyncio
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.watching.http_api import HttpApi, HttpListener, ReportStream, RequestAnswer
from headwater.pipelines.watching.status import StatusBoard
from tests.certificates import Authority
from tests.memory_log import MemoryLog

TOKEN = "a-token-of-a-file"


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[HttpListener]:
    listener = HttpListener(HttpSettings(**{"listen": "127.0.0.1:0"} | settings))

    async def refuse(_: bytes) -> dict[str, object]:
        raise AssertionError("nothing is handed over")

    board = StatusBoard(SystemClock())
    answering = RequestAnswer(board, ReportStream(), MemoryLog(), SystemClock(), refuse)
    api = HttpApi(answering, token="", listener=listener)
    await api.start()
    try:
        yield listener
    finally:
        await api.stop()


async def status(
    listener: HttpListener,
    *,
    token: str | None = None,
    host: str | None = None,
    path: str = "/status",
    context: ssl.SSLContext | None = None,
) -> int:
    request = urllib.request.Request(listener.address + path)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    if host is not None:
        request.add_header("Host", host)

    def ask() -> int:
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    return await asyncio.to_thread(ask)


async def test_a_token_file_that_is_missing_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"

    async with serving(token_file=file) as listener:
        found = await status(listener, token=file.read_text().strip())

    assert found == 200
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_new_token_counts_at_once_and_the_former_one_no_longer(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    async with serving(token_file=file) as listener:
        before = await status(listener, token=TOKEN)
        file.write_text("another-token-of-the-file")
        former = await status(listener, token=TOKEN)
        new = await status(listener, token="another-token-of-the-file")
        file.unlink()
        gone = await status(listener, token="another-token-of-the-file")
        empty = await status(listener, token="")

    assert (before, former, new, gone, empty) == (200, 401, 200, 401, 401)


async def test_an_address_without_a_token_file_answers_only_probes() -> None:
    async with serving() as listener:
        found = [await status(listener, token=each) for each in (None, "", TOKEN)]
        probe = await status(listener, path="/readyz")

    assert found == [401] * 3 and probe == 200


async def test_names_of_the_settings_are_let_in_and_others_are_not(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    async with serving(token_file=file, hosts=["hw.example", "proxy.example:8443"]) as listener:
        port = listener.port
        hosts = (
            "hw.example",
            f"HW.example:{port}",
            "proxy.example:8443",
            "proxy.example",
            "hw.example:1",
            "other.example",
        )
        found = [await status(listener, token=TOKEN, host=host) for host in hosts]

    assert found == [200, 200, 200, 403, 403, 403]


async def test_an_address_with_a_certificate_speaks_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("127.0.0.1")
    file = tmp_path / "token"

    async with serving(
        listen="0.0.0.0:0", token_file=file, certificate_file=certificate, key_file=certificate
    ) as listener:
        listener_at_home = f"https://127.0.0.1:{listener.port}"
        context = ssl.create_default_context(cafile=str(authority.file))
        request = urllib.request.Request(
            listener_at_home + "/status", headers={"Authorization": f"Bearer {listener.token}"}
        )

        def ask() -> int:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return int(answer.status)

        found = await asyncio.to_thread(ask)

    assert found == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "0.0.0.0:8471"},
        {"listen": "0.0.0.0:8471", "token_file": "token"},
        {"listen": "0.0.0.0:8471", "certificate_file": "c", "key_file": "k"},
        {"listen": "[::]:8471"},
        {"listen": "headwater.example:8471"},
    ],
)
def test_an_address_beyond_loopback_needs_a_certificate_and_a_token(settings: Any) -> None:
    with pytest.raises(ValidationError, match="beyond loopback needs"):
        HttpSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"listen": "127.0.0.1"}, "listen"),
        ({"listen": "127.0.0.1:99999"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:1", "certificate_file": "c"}, "a certificate needs its key"),
        ({"hosts": ["hw.example"]}, "http.listen is missing"),
    ],
)
def test_settings_that_contradict_are_refused(settings: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        HttpSettings(**settings)


def test_an_address_in_use_a_short_token_and_a_wrong_key_are_named(tmp_path: Path) -> None:
    taken = HttpListener(HttpSettings(listen="127.0.0.1:0"))
    short, first = tmp_path / "short", Authority(tmp_path).issue("127.0.0.1")
    second = Authority(tmp_path, "other").issue("127.0.0.2")
    short.write_text("short")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"listen": f"127.0.0.1:{taken.port}"}, "cannot be listened on"),
        ({"token_file": short}, "the token file cannot be used"),
        ({"token_file": tmp_path / "nowhere" / "token"}, "the token file cannot be used"),
        ({"certificate_file": short, "key_file": short}, "the certificate cannot be used"),
        ({"certificate_file": first, "key_file": second}, "the certificate cannot be used"),
    ]

    for settings, problem in wrong:
        with pytest.raises(ConfigError, match=problem):
            HttpListener(HttpSettings(**{"listen": "127.0.0.1:0"} | settings))

    asyncio.run(taken.stop())
