"""The HTTP API answers whoever holds the token, and nobody a browser may have sent."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import (
    ConfigError,
    DirectoryInUse,
    HeadwaterError,
    SinkUnavailable,
)
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.journal.audit import read_actions
from headwater.pipelines.journal.commits import encode_positions, positions_home
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.journal.internal_topics import POSITIONS, internal_topics
from headwater.pipelines.reports import OffsetsApplied, RowsMoved, StateChanged, TaskState
from headwater.pipelines.running.owner_client import LockHolder
from headwater.pipelines.watching import http_api
from headwater.pipelines.watching.http_api import HttpApi, ReportStream, RequestAnswer
from headwater.pipelines.watching.http_routes import BODY_BYTES_MAX
from headwater.pipelines.watching.status import StatusBoard
from tests.builders import START_MS, batch

TOKEN = "the-token-of-this-test"
ORDERS = "public.orders"
ROUTES = [
    ("GET", "/status"),
    ("GET", "/metrics"),
    ("GET", "/events"),
    ("GET", "/pipelines/shop/offsets"),
    ("GET", "/pipelines/shop/rows/orders/42"),
    ("POST", "/pipelines/shop/pause"),
    ("POST", "/pipelines/shop/resume/public.orders"),
    ("POST", "/pipelines/shop/restart"),
    ("POST", "/run"),
    ("GET", "/nothing-is-here"),
    ("DELETE", "/status"),
]


@dataclass
class Served:
    """A running API with what stands behind it."""

    log: EmbeddedLog
    board: StatusBoard
    stream: ReportStream
    address: str
    handed: list[bytes] = field(default_factory=list)
    refusal: Exception | None = None

    @property
    def owner(self) -> LockHolder:
        return LockHolder(self.address, TOKEN)

    async def hand_over(self, body: bytes) -> Mapping[str, object]:
        if self.refusal is not None:
            raise self.refusal
        self.handed.append(body)
        return {"attached": True}

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Mapping[str, Any]:
        return await asyncio.to_thread(self.owner.ask, method, path, body)

    async def raw(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """What is answered to exactly these headers."""

        def send() -> tuple[int, bytes, Mapping[str, str]]:
            host, _, port = self.address.rpartition(":")
            with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection:
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    connection.putheader(name, value)
                if body:
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body or None)
                answer = connection.getresponse()
                return answer.status, answer.read(), dict(answer.getheaders())

        return await asyncio.to_thread(send)

    @property
    def good(self) -> dict[str, str]:
        return self.headers(authorization=f"Bearer {TOKEN}")

    def headers(self, *, authorization: str | None) -> dict[str, str]:
        found = {"Host": self.address}
        return found if authorization is None else found | {"Authorization": authorization}

    async def until_listeners(self, count: int) -> None:
        while self.stream.listeners != count:  # noqa: ASYNC110 - nobody tells who comes and goes
            await asyncio.sleep(0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """One pipeline that runs, at whose positions a look can be had."""
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))
    found = Served(log, StatusBoard(SystemClock()), ReportStream(), "")
    for task in ("source", "sql"):
        found.board(StateChanged("shop", task, "", TaskState.RUNNING))
    found.board(RowsMoved("shop", "source", ORDERS, 3, 300, 1_000, 2_000))
    answering = RequestAnswer(found.board, found.stream, log, SystemClock(), found.hand_over)
    api = HttpApi(answering, token=TOKEN)
    found.address = await api.start()
    yield found
    await api.stop()
    await log.close()


async def test_no_route_answers_without_the_token(served: Served) -> None:
    given = (None, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer")

    answers = [
        await served.raw(method, path, served.headers(authorization=each))
        for method, path in ROUTES
        for each in given
    ]

    assert {status for status, _, _ in answers} == {401}
    assert all(TOKEN.encode() not in body for _, body, _ in answers)
    assert served.handed == []


async def test_no_route_answers_a_name_that_was_made_to_point_here(served: Served) -> None:
    port = served.address.rpartition(":")[2]
    hosts = (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil:{port}")

    answers = [
        await served.raw(method, path, served.good | {"Host": host})
        for method, path in ROUTES
        for host in hosts
    ]

    assert {status for status, _, _ in answers} == {403}


async def test_no_route_answers_another_web_page(served: Served) -> None:
    port = served.address.rpartition(":")[2]
    origins = ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1")

    answers = [
        await served.raw(method, path, served.good | {"Origin": origin})
        for method, path in ROUTES
        for origin in origins
    ]

    assert {status for status, _, _ in answers} == {403}
    names = {name.lower() for _, _, headers in answers for name in headers}
    assert not any(name.startswith("access-control") for name in names)


async def test_our_own_page_and_every_name_of_loopback_are_let_in(served: Served) -> None:
    port = served.address.rpartition(":")[2]

    for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
        headers = served.good | {"Host": name, "Origin": f"http://{name}"}
        status, _, _ = await served.raw("GET", "/status", headers)
        assert status == 200, name


async def test_probes_answer_everybody_and_say_nothing_else(served: Served) -> None:
    anybody = {"Host": "10.1.2.3:8471", "Origin": "https://other.example"}

    ready = [await served.raw("GET", path, anybody) for path in ("/healthz", "/readyz")]
    served.board.log_problem = lambda: "no space"
    unready = await served.raw("GET", "/readyz", anybody)
    alive = await served.raw("GET", "/healthz", anybody)
    written, _, _ = await served.raw("POST", "/healthz", anybody)

    assert [(status, body) for status, body, _ in ready] == [(200, b'{"ok":true}')] * 2
    assert unready[:2] == (503, b'{"ok":false}')
    assert alive[:2] == (200, b'{"ok":true}')
    assert written == 403


async def test_a_process_that_stops_is_not_ready(served: Served) -> None:
    served.board.is_stopping = True

    status, _, _ = await served.raw("GET", "/readyz", {"Host": "anything"})

    assert status == 503


async def test_the_api_listens_on_loopback_only(served: Served) -> None:
    assert served.address.startswith("127.0.0.1:")


async def test_a_route_that_is_not_there_is_said_to_those_who_may_ask(served: Served) -> None:
    missing, said, _ = await served.raw("GET", "/nothing-is-here", served.good)
    wrong, said_of_it, headers = await served.raw("DELETE", "/status", served.good)

    assert (missing, wrong) == (404, 405)
    assert json.loads(said)["error"]["problem"] == "the address has no page"
    assert json.loads(said_of_it)["error"]["problem"] == "the address is served by another method"
    assert set(headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_status_says_how_many_records_a_sink_has_still_to_apply(served: Served) -> None:
    await served.log.ensure_topic(TopicSettings(name="shop.orders"))
    await served.log.append(TopicPartition("shop.orders", 0), batch_of("a", "b", "c", "the marker"))
    served.board(
        OffsetsApplied("shop", "sql", {"shop.orders-0": "1", "__headwater_commits-3": "0"})
    )

    found = await served.ask("GET", "/status")

    assert found["pipelines"]["shop"]["state"] == "running"
    assert found["pipelines"]["shop"]["tasks"]["sql"]["lag_records"] == 2


async def test_status_is_answered_although_the_log_does_not(served: Served) -> None:
    served.board(OffsetsApplied("shop", "sql", {"no-such-topic-0": "1"}))

    found = await served.ask("GET", "/status")

    assert found["pipelines"]["shop"]["tasks"]["sql"]["lag_records"] is None


def batch_of(*values: str) -> Batch:
    data = batch(*values)
    return Batch(data, len(values), START_MS)


async def test_metrics_are_what_prometheus_reads(served: Served) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    status, body, headers = await served.raw("GET", "/metrics", served.good)

    assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
    families = {each.name: each for each in text_string_to_metric_families(body.decode())}
    (sample,) = families["headwater_rows"].samples
    assert (sample.value, sample.labels["table"]) == (3, ORDERS)


async def test_a_pause_is_written_into_the_log(served: Served) -> None:
    whole = await served.ask("POST", "/pipelines/shop/pause")
    table = await served.ask("POST", "/pipelines/shop/pause/orders")
    now = await read_desired(served.log, "shop")

    assert whole["table"] is None
    assert table["table"] == ORDERS, "bare where only one is called so"
    assert now.is_paused and now.paused_tables == {ORDERS}
    assert [signal.id for signal in now.signals] == [whole["id"], table["id"]]

    await served.ask("POST", "/pipelines/shop/resume")
    assert not (await read_desired(served.log, "shop")).is_paused
    done = [(each.command, each.target, each.via) for each in await read_actions(served.log)]
    assert done == [
        ("resume", "shop", "http"),
        ("pause", f"shop/{ORDERS}", "http"),
        ("pause", "shop", "http"),
    ]


async def test_a_restart_is_a_wish_for_a_fresh_start(served: Served) -> None:
    said = await served.ask("POST", "/pipelines/shop/restart")

    assert (await read_desired(served.log, "shop")).fresh_start() == said["id"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/pipelines/other/pause", "the pipeline is not running here"),
        ("/pipelines/other/offsets", "the pipeline is not running here"),
        ("/pipelines/shop/pause/ordres", "the pipeline does not have this table"),
        ("/pipelines/shop/pause/", "the path has no table"),
        ("/pipelines/shop/pause/..%2F..%2Fx", "the pipeline does not have this table"),
    ],
)
async def test_an_unknown_pipeline_or_table_cannot_be_controlled(
    served: Served, path: str, problem: str
) -> None:
    method = "GET" if path.endswith("offsets") else "POST"

    with pytest.raises(ConfigError, match=problem):
        await served.ask(method, path)

    assert (await read_desired(served.log, "shop")).signals == ()


async def test_offsets_are_those_in_the_log_and_those_that_sinks_told(served: Served) -> None:
    positions = next(each for each in internal_topics(history_ms=1) if each.name == POSITIONS)
    await served.log.ensure_topic(positions)
    await served.log.append(
        positions_home("shop"), encode_positions("shop", {"stream": "0/1A"}, now_ms=1)
    )
    served.board(OffsetsApplied("shop", "sql", {"shop.public.orders-0": "7"}))

    found = await served.ask("GET", "/pipelines/shop/offsets")

    assert found["source"] == {"stream": "0/1A"}
    assert found["sinks"] == {"sql": {"shop.public.orders-0": "7"}}


async def test_an_edited_file_is_handed_over_whole(served: Served) -> None:
    body = bytes(range(256)) * 1_000

    assert await served.ask("POST", "/run", body) == {"attached": True}

    assert served.handed == [body]


async def test_a_body_is_bounded(served: Served) -> None:
    with pytest.raises(HeadwaterError):
        await served.ask("POST", "/run", bytes(BODY_BYTES_MAX + 1))

    assert served.handed == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("the file is wrong", hint="edit it", line=3), 400),
        (DirectoryInUse("somebody else"), 409),
        (SinkUnavailable("nobody answers"), 503),
    ],
)
async def test_an_expected_failure_is_answered_in_its_own_words(
    served: Served, error: HeadwaterError, status: int
) -> None:
    served.refusal = error

    answered, body, _ = await served.raw("POST", "/run", served.good, b"x")

    assert answered == status
    said = json.loads(body)["error"]
    assert (said["kind"], said["problem"]) == (type(error).__name__, error.problem)


async def test_a_bug_is_answered_without_its_words(served: Served) -> None:
    served.refusal = RuntimeError("password=canary")

    status, body, _ = await served.raw("POST", "/run", served.good, b"x")

    assert status == 500
    assert b"canary" not in body and b"internal error, a bug of Headwater" in body


async def test_a_listener_hears_reports_as_they_come(served: Served) -> None:
    wanted = StateChanged("shop", "sql", "", TaskState.PAUSED)
    reports = served.owner.reports("shop")
    first = asyncio.create_task(asyncio.to_thread(next, reports))
    await served.until_listeners(1)

    served.stream(StateChanged("other", "sql", "", TaskState.PAUSED))
    served.stream(wanted)

    assert (await first)["kind"] == "StateChanged"
    served.stream.end()
    assert await asyncio.to_thread(next, reports, None) is None


async def test_a_listener_that_goes_away_is_forgotten(served: Served) -> None:
    reports = served.owner.reports()
    first = asyncio.create_task(asyncio.to_thread(next, reports))
    await served.until_listeners(1)
    served.stream(StateChanged("shop", "sql", "", TaskState.PAUSED))
    await first

    await asyncio.to_thread(close, reports)

    await served.until_listeners(0)


def close(reports: Any) -> None:
    reports.close()


async def test_a_slow_listener_is_told_how_much_it_has_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_api, "WAITING_MAX", 3)
    stream = ReportStream()

    with stream.listening(None) as listener:
        for number in range(10):
            stream(OffsetsApplied("shop", "source", {"stream": str(number)}))
        listener.end()
        lines = [json.loads(line) async for line in listener.lines()]

    assert lines[0] == {"kind": "Missed", "count": 7}
    assert [line["positions"]["stream"] for line in lines[1:]] == ["7", "8", "9"]


async def test_the_end_of_the_api_ends_those_who_listen(served: Served) -> None:
    reports = served.owner.reports()
    waiting = asyncio.create_task(asyncio.to_thread(next, reports, None))
    await served.until_listeners(1)

    served.stream.end()

    assert await waiting is None


async def test_an_owner_that_is_gone_is_reported(served: Served) -> None:
    gone = LockHolder("127.0.0.1:1", TOKEN)

    with pytest.raises(HeadwaterError, match="does not answer"):
        await asyncio.to_thread(gone.status)
