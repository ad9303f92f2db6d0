"""A webhook hears what needs a person, once, without secrets, and later if it cannot now."""

import asyncio
import http.server
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.config.redaction import Redaction
from headwater.pipelines.file.spec import NotifySettings
from headwater.pipelines.reports import DeadLettersAdded, RemarksMade, StateChanged, TaskState
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.watching import notifier as notifier_module
from headwater.pipelines.watching.notifier import AGAIN_MS, Notifier, NotifyTarget, post
from tests.budget import PATIENCE_S
from tests.fakes import SimulatedClock
from tests.pipelines.run_process import start
from tests.raw_server import answering

URL = "https://hook.example/secret-path"


def a_pipeline(url: str = URL, *, name: str = "shop") -> Any:
    settings = NotifySettings.model_validate({"url": url, "token": "the-token"})
    spec = SimpleNamespace(notify=settings)
    return SimpleNamespace(name=name, spec=spec, redaction=Redaction(["canary-password"]))


def quarantined(reason: str, table: str = "orders") -> StateChanged:
    return StateChanged("shop", "sql", table, TaskState.QUARANTINED, reason)


async def told(
    clock: SimulatedClock, act: Callable[[Notifier], None], *, failures: int = 0
) -> list[dict[str, Any]]:
    """The bodies that a webhook gets which fails some times at first."""
    bodies: list[dict[str, Any]] = []
    left = [failures]

    def send(target: NotifyTarget, body: bytes) -> None:
        assert target == NotifyTarget(URL, "the-token")
        if left[0]:
            left[0] -= 1
            raise ConnectionRefusedError("nobody listens")
        bodies.append(json.loads(body))

    notifier = Notifier(clock, send=send)
    notifier.know(a_pipeline())
    running = asyncio.create_task(notifier.run())
    act(notifier)
    await notifier.finish()
    running.cancel()
    await asyncio.wait([running])
    return bodies


async def test_a_webhook_is_told_what_needs_a_person_in_one_sentence() -> None:
    def act(notifier: Notifier) -> None:
        notifier(quarantined("canary-password is wrong\n  hint: headwater resume shop"))
        notifier(StateChanged("shop", "source", "", TaskState.QUARANTINED, "the slot is gone"))
        notifier(RemarksMade("shop", "source", "keys", "it has no key", "ALTER it", ["audit"]))
        notifier(DeadLettersAdded("shop", "sql", "orders", 3, "no number"))
        notifier(DeadLettersAdded("shop", "sql", "orders", 4, "no date"))
        notifier(StateChanged("shop", "sql", "", TaskState.RETRYING, "nobody answers"))
        notifier(StateChanged("other", "sql", "", TaskState.QUARANTINED, "not ours"))

    found = await told(SimulatedClock(5_000), act)

    assert [(each["kind"], each["task"], each["table"], each["records"]) for each in found] == [
        ("quarantined", "sql", "orders", 0),
        ("quarantined", "source", "", 0),
        ("left_out", "source", "audit", 0),
        ("dead_letters", "sql", "orders", 7),
    ]
    assert found[0]["text"] == (
        "shop/sql orders: quarantined: *** is wrong hint: headwater resume shop"
    )
    assert found[3]["text"] == "shop/sql orders: 7 dead letters: no date"
    assert {each["at_ms"] for each in found} == {5_000}


async def test_a_table_that_is_retried_is_told_once_for_each_reason_and_hour() -> None:
    clock = SimulatedClock()

    def act(notifier: Notifier) -> None:
        notifier(quarantined("no right\n  next try at 10:00"))
        notifier(quarantined("no right\n  next try at 10:10"))
        notifier(quarantined("another reason"))
        clock.advance(AGAIN_MS)
        notifier(quarantined("no right"))

    found = await told(clock, act)

    assert [each["reason"].partition("\n")[0] for each in found] == [
        "no right",
        "another reason",
        "no right",
    ]


async def test_a_webhook_that_fails_gets_everything_later_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifier_module, "PAUSES_S", (0.0,))

    def act(notifier: Notifier) -> None:
        notifier(quarantined("first"))
        notifier(quarantined("second"))

    found = await told(SimulatedClock(), act, failures=3)

    assert [each["reason"] for each in found] == ["first", "second"]


async def test_a_dead_webhook_holds_up_no_other() -> None:
    """Not even where there are more of them than threads that all tasks share."""
    dead = [f"dead-{number}" for number in range(50)]
    released = threading.Event()
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def send(target: NotifyTarget, body: bytes) -> None:
        if "dead" in target.url:
            released.wait(PATIENCE_S)
        else:
            loop.call_soon_threadsafe(arrived.set)

    notifier = Notifier(SimulatedClock(), send=send)
    notifier.know(a_pipeline("https://dead.example", name="dead-0"))
    running = asyncio.create_task(notifier.run())
    await asyncio.sleep(0)
    for name in dead[1:]:
        notifier.know(a_pipeline("https://dead.example", name=name))
    notifier.know(a_pipeline())
    for name in (*dead, "shop"):
        notifier(StateChanged(name, "sql", "", TaskState.QUARANTINED, "no right"))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
    finally:
        released.set()
        running.cancel()
        await asyncio.wait([running])


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="begins with http"):
        NotifySettings.model_validate({"url": "file:///etc/passwd"})


@contextmanager
def webhook() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Its address, and what it has got: authorization and body."""
    got: list[tuple[str, dict[str, Any]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def take(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "/hook")
            else:
                got.append((self.headers.get("Authorization", ""), json.loads(body)))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

        do_POST = take  # noqa: N815 - so the server calls it

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_redirect_is_a_failure() -> None:
    with webhook() as (address, got):
        post(NotifyTarget(f"{address}/hook", ""), b"{}")
        with pytest.raises(OSError, match="302"):
            post(NotifyTarget(f"{address}/elsewhere", ""), b"{}")

    assert got == [("", {})]


@pytest.mark.parametrize("answer", [b"", b"hello\r\n\r\n", b"HTTP/1.1 2x"])
def test_an_answer_that_is_no_http_is_a_failure(answer: bytes) -> None:
    with answering(answer) as address, pytest.raises(OSError):
        post(NotifyTarget(f"http://{address}/hook", ""), b"{}")


@pytest.mark.slow
def test_a_run_tells_the_webhook_of_its_file_before_it_ends(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,total\n1,2\n")
    with closing(sqlite3.connect(tmp_path / "target.db")) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
    with webhook() as (address, got):
        (tmp_path / "pipeline.yaml").write_text(
            "pipeline: shop\n"
            'source: {type: files, path: ./*.csv, table: "{stem}", key: id, settle: 0s}\n'
            'sink: {type: sql, url: "sqlite:///target.db"}\n'
            "workers: 0\n"
            f"notify: {{url: '{address}/hook', token: a-token}}\n"
        )
        ran = start("run", tmp_path / "pipeline.yaml", "--once")
        ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == exit_codes.DIFFERENT
    [(authorization, body)] = got
    assert authorization == "Bearer a-token"
    assert (body["kind"], body["table"]) == ("quarantined", "orders")
