"""Kafka Connect's REST API at /connect answers as Connect 4.3 has answered the same requests."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.client.cluster_admin import ClusterDescription
from headwater.pipelines.console.connect_view import file_settings
from headwater.pipelines.running.owner_client import LockHolder
from tests.memory_log import MemoryLog
from tests.pipelines.console.connect_requests import (
    ACTS,
    FIXTURE,
    LOOKS,
    REFUSED,
    ConnectRequest,
    form_of_answer,
)
from tests.pipelines.console.served_console import ServedConsole, served_console, sources_of

ANSWERS: Mapping[str, Any] = json.loads(Path(FIXTURE).read_text())
NAMES = {"shop.source": "SOURCE", "shop.lake": "SINK"}
FILE = """\
pipeline: shop
source: {type: postgres, url: "postgresql://user:secret@host/shop", tables: [public.*]}
sink: {type: spark, name: lake, path: ./lake, options: {password: "${env:P}", api_token: abc}}
"""


def facts(state: str, reason: str = "", **more: object) -> dict[str, Any]:
    return {
        "state": state,
        "reason": reason,
        "rows_per_s": 0.0,
        "lag_ms": 0,
        "positions": {},
    } | more


def table(source: str, lake: str, reason: str = "") -> dict[str, Any]:
    tasks = {"source": facts(source), "lake": facts(lake, reason)}
    return facts(lake, reason) | {"tasks": tasks}


STATUS = {
    "at_ms": 1,
    "pipelines": {
        "shop": {
            "state": "running",
            "tasks": {
                "source": facts("running", positions={"stream": "0/16B3748"}),
                "lake": facts("running", positions={"shop.public.orders-0": "500"}),
                "verify": facts("running"),
            },
            "tables": {
                "public.orders": table("running", "running"),
                "public.items": table("running", "quarantined", "the value does not fit"),
            },
        }
    },
}


class Owner(LockHolder):
    """Answers with a status, and takes signals."""

    def status(self) -> Mapping[str, Any]:
        return STATUS

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, via: str = ""
    ) -> Mapping[str, Any]:
        SENT.append(f"{method} {path} by {via}")
        _, _, pipeline, verb, *rest = path.split("/")
        table = rest[0] if rest else None
        return {"pipeline": pipeline, "table": table, "signal": verb, "id": "1"}


SENT: list[str] = []


class LogOfCluster(MemoryLog):
    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("ZefQL6uWSvGY2H3CMUyTjw", 1, ())


def served(
    file: Path | None = None, *, is_read_only: bool = False, log: MemoryLog | None = None
) -> Any:
    return served_console(
        sources_of(
            log or LogOfCluster(),
            find_owner=lambda: Owner("127.0.0.1:1", "token"),
            file=file,
            has_connect=True,
            is_read_only=is_read_only,
        )
    )


async def asked(console: ServedConsole, method: str, path: str, password: str = "") -> Any:
    login = base64.b64encode(f"anybody:{password or console.server.token}".encode()).decode()
    headers = {"Host": console.address, "Authorization": f"Basic {login}"}
    code, content, _ = await console.raw(method, f"/connect{path}", headers)
    return code, json.loads(content) if content else None


@pytest.fixture(autouse=True)
def sent() -> list[str]:
    SENT.clear()
    return SENT


async def test_an_answer_has_the_form_of_connects_own(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    async with served(file) as console:
        await status_known(console)
        different = {}
        for request in (*LOOKS, *ACTS):
            code, content = await asked(console, request.method, path_of(request))
            form = form_of_answer(request, content, NAMES) if content is not None else None
            if [code, form] != ANSWERS[" ".join(request)]:
                different[" ".join(request)] = [code, form], ANSWERS[" ".join(request)]

    assert different == {}


def path_of(request: ConnectRequest) -> str:
    return request.path.format(
        source="shop.source", sink="shop.lake", plugin="headwater.postgres.source"
    )


async def status_known(console: ServedConsole) -> None:
    """The console asks for the status as soon as it serves; each look here ends with an answer."""
    for _ in range(1_000):
        if await asked(console, "GET", "/connectors") == (200, ["shop.lake", "shop.source"]):
            return
    raise AssertionError("the status has not become known")


async def test_states_of_tables_are_those_of_connect_tasks() -> None:
    async with served() as console:
        await status_known(console)
        _, status = await asked(console, "GET", "/connectors/shop.lake/status")

    assert [each["state"] for each in status["tasks"]] == ["FAILED", "RUNNING"]
    assert status["tasks"][0]["trace"] == "the value does not fit"
    assert status["connector"]["state"] == "RUNNING" and status["type"] == "sink"


async def test_an_act_is_a_signal_that_says_from_where_it_comes(sent: list[str]) -> None:
    async with served() as console:
        await status_known(console)
        for method, path in (
            ("PUT", "/connectors/shop.lake/pause"),
            ("PUT", "/connectors/shop.lake/resume"),
            ("POST", "/connectors/shop.source/restart"),
            ("POST", "/connectors/shop.lake/tasks/1/restart"),
        ):
            code, _ = await asked(console, method, path)
            assert code in (202, 204)

    assert sent == [
        "POST /pipelines/shop/pause by console",
        "POST /pipelines/shop/resume by console",
        "POST /pipelines/shop/restart by console",
        "POST /pipelines/shop/restart/public.orders by console",
    ]


@pytest.mark.parametrize("request_", REFUSED, ids=" ".join)
async def test_an_edit_is_refused_with_the_file_to_edit(
    tmp_path: Path, request_: ConnectRequest, sent: list[str]
) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    async with served(tmp_path / "shop.yaml") as console:
        await status_known(console)
        code, error = await asked(console, request_.method, path_of(request_))

    assert (code, error["error_code"]) == (405, 405)
    assert "edit shop.yaml" in error["message"] and sent == []


async def test_a_read_only_console_has_no_route_that_acts(sent: list[str]) -> None:
    async with served(is_read_only=True) as console:
        await status_known(console)
        code, _ = await asked(console, "PUT", "/connectors/shop.lake/pause")

    assert code == 404 and sent == []


async def test_a_wrong_password_and_another_origin_are_refused() -> None:
    async with served() as console:
        assert (await asked(console, "GET", "/connectors", "wrong"))[0] == 401
        headers = {"Host": console.address, "Authorization": "Basic %%%"}
        assert (await console.raw("GET", "/connect/", headers))[0] == 401
        foreign = console.good | {"Origin": "http://attacker.example"}
        assert (await console.raw("GET", "/connect/connectors", foreign))[0] == 403


async def test_connect_is_not_served_unless_it_is_asked_for() -> None:
    async with served_console(sources_of(MemoryLog())) as console:
        assert (await console.raw("GET", "/connect/connectors", console.good))[0] == 404


def test_a_default_of_a_variable_and_a_key_with_a_suffix_are_secrets(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "pipeline: shop\nsource: {type: generator, a.password: '${env:P:-hunter2}'}\n"
        "sink: {name: lake, type: spark, spark: {fs.azure.account.key.NAME: hunter3}}\n"
    )

    assert "hunter" not in str(file_settings(file))


def test_settings_of_a_file_have_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)

    found = file_settings(file)

    assert found["shop.source"] == {
        "type": "postgres", "url": "***", "tables": "public.*", "headwater.file": "shop.yaml"
    }  # fmt: skip
    assert found["shop.lake"]["options.password"] == "${env:P}"
    assert found["shop.lake"]["options.api_token"] == "***"
