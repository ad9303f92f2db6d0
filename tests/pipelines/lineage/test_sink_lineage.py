"""A lineage server hears when a sink starts, ends and fails, and which columns become which."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.config.redaction import Redaction
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.http_settings import OpenLineageSettings
from headwater.pipelines.lineage.column_lineage import ColumnOrigin, TableLineage
from headwater.pipelines.lineage.datasets import DatasetName
from headwater.pipelines.lineage.sink_lineage import (
    LineageSender,
    RunMoment,
    TableFlow,
    run_event,
)
from scripts.free_port import free_port
from tests.budget import PATIENCE_S
from tests.http_receiver import HttpReceiver, receiving
from tests.pipelines.run_process import running, start
from tests.slices import schema_of


def events_of(server: HttpReceiver) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in server.received]


def write_pipeline(
    directory: Path, address: str, further: str = "", *, target: str = "sqlite:///target.db"
) -> Path:
    (directory / "orders.csv").write_text("id,total\n1,2\n2,3\n3,5\n")
    path = directory / "pipeline.yaml"
    path.write_text(
        "pipeline: shop\n"
        'source: {type: files, path: ./*.csv, table: "{stem}", key: id, settle: 0s}\n'
        "transform:\n"
        "  - {table: orders, add: {gross: total * 2}, filter: total > 2, rename: {total: net}}\n"
        f"sink: {{type: sql, url: '{target}'}}\n"
        f"openlineage: {{url: '{address}', api_key: the-key}}\n"
        f"{further}\n"
    )
    return path


def test_a_secret_in_a_rule_is_not_told() -> None:
    schema = schema_of("public.orders", id=pa.int64(), email=pa.string())
    salted = ColumnOrigin("email", "TRANSFORMATION", "md5('canary-salt' || email)")
    kept = ColumnOrigin("id", "FILTER", "filter: email <> 'canary-salt'")
    lineage = TableLineage({"email": [salted]}, [kept])
    place = DatasetName("file", "/orders")
    flow = TableFlow(place, schema, place, schema, lineage)
    run_id = "0190b1c2-0000-7000-8000-000000000000"
    moment = RunMoment("COMPLETE", run_id, "shop.lake", 0, [flow], is_stream=True, rows={})

    told = str(run_event(moment, "headwater", Redaction({"canary-salt"}).scrub))

    assert "md5('***' || email)" in told and "filter: email <> '***'" in told


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_of_a_sink_starts_and_completes_with_its_columns(
    tmp_path: Path, workers: int
) -> None:
    with receiving() as server:
        ran = start(
            "run", write_pipeline(tmp_path, server.address, f"workers: {workers}"), "--once"
        )
        _, said = ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == 0, said
    events = events_of(server)
    assert {(each.path, each.headers["Authorization"]) for each in server.received} == {
        ("/api/v1/lineage", "Bearer the-key")
    }
    states: dict[str, list[str]] = {}
    for event in events:
        states.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert {(each[0], each[-1]) for each in states.values()} == {("START", "COMPLETE")}
    assert {event["job"]["name"] for event in events} == {"shop.sql"}

    last = events[-1]
    assert last["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    [read], [written] = last["inputs"], last["outputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/*.csv")
    assert (written["namespace"], written["name"]) == (f"sqlite:{tmp_path}/target.db", "orders")
    fields = written["facets"]["schema"]["fields"]
    assert [each["name"] for each in fields] == ["id", "net", "gross"]
    assert [each["name"] for each in read["facets"]["schema"]["fields"]] == ["id", "total"]
    lineage = written["facets"]["columnLineage"]
    origins = {
        name: [(each["field"], each["transformations"][0]["subtype"]) for each in of["inputFields"]]
        for name, of in lineage["fields"].items()
    }
    assert origins == {
        "id": [("id", "IDENTITY")],
        "net": [("total", "IDENTITY")],
        "gross": [("total", "TRANSFORMATION")],
    }
    [filtered] = lineage["dataset"]
    assert (filtered["field"], filtered["transformations"][0]["type"]) == ("total", "INDIRECT")
    rows = [
        output["outputFacets"]["outputStatistics"]["rowCount"]
        for event in events
        for output in event["outputs"]
        if output.get("outputFacets")
    ]
    assert sum(rows) == 3


@pytest.mark.slow
def test_a_sink_that_fails_says_why_once(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "target.db")) as connection:
        connection.execute("CREATE TABLE _headwater_offsets (topic TEXT)")
    with receiving() as server:
        path = write_pipeline(tmp_path, server.address, "workers: 0\nerrors: {retry: {for: 1s}}")
        ran = start("run", path, "--once")
        _, said = ran.communicate(timeout=PATIENCE_S)

    events = events_of(server)
    failed = [event for event in events if event["eventType"] == "FAIL"]
    assert ran.returncode != 0, said
    assert len(failed) == 1, said
    assert failed[0]["run"]["facets"]["errorMessage"]["message"]
    assert events[0]["eventType"] == "START"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_tries_of_a_sink_that_fail_again_are_not_told(tmp_path: Path, workers: int) -> None:
    target = f"postgresql://nobody@127.0.0.1:{free_port()}/shop"
    with receiving() as server:
        path = write_pipeline(tmp_path, server.address, f"workers: {workers}", target=target)
        with running("run", path, "--once") as ran:
            assert ran.stderr is not None
            lives = 0
            while lives < 5:
                line = ran.stderr.readline()
                assert line, "it ended"
                lives += "will use `http` transport" in line
            ran.terminate()
            ran.communicate(timeout=PATIENCE_S)

    states = [event["eventType"] for event in events_of(server)]
    assert states == ["START", "FAIL"]


@pytest.mark.slow
def test_a_server_that_is_gone_does_not_stop_rows(tmp_path: Path) -> None:
    with receiving() as server:
        address = server.address
    ran = start("run", write_pipeline(tmp_path, address, "workers: 0"), "--once")
    _, said = ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == 0, said
    assert "the lineage server has failed" in said
    with closing(sqlite3.connect(tmp_path / "target.db")) as connection:
        assert connection.execute("SELECT id, net, gross FROM orders ORDER BY id").fetchall()


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    settings = OpenLineageSettings.model_validate({"url": "http://127.0.0.1:1"})

    with pytest.raises(ConfigError, match="not installed") as refused:
        LineageSender(settings, str)

    assert refused.value.hint == "pip install 'headwater[openlineage]'"
