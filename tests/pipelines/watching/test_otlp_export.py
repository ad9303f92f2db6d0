"""A collector gets each slice as a span from the source's commit to the target's, and every
metric."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.watching import otlp_export
from headwater.pipelines.watching.metrics import METRICS
from headwater.pipelines.watching.otlp_export import OtlpExports
from tests.budget import PATIENCE_S
from tests.http_receiver import HttpReceiver, receiving
from tests.pipelines.pipeline_files import one
from tests.pipelines.run_process import ROOT, start


def spans_of(otlp: HttpReceiver) -> list[Span]:
    return [
        span
        for each in otlp.received
        if each.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(each.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def last_metrics(otlp: HttpReceiver) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Points of the last request, by metric."""
    last = [each.body for each in otlp.received if each.path == "/v1/metrics"][-1]
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for resource in ExportMetricsServiceRequest.FromString(last).resource_metrics:
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            points = metric.sum.data_points or metric.gauge.data_points
            found[metric.name] = [
                (
                    {each.key: each.value.string_value for each in point.attributes},
                    float(getattr(point, str(point.WhichOneof("value")))),
                )
                for point in points
            ]
    return found


def write_pipeline(directory: Path, further: str) -> Path:
    (directory / "orders.csv").write_text("id,total\n1,2\n2,3\n3,5\n")
    path = directory / "pipeline.yaml"
    path.write_text(
        "pipeline: shop\n"
        'source: {type: files, path: ./*.csv, table: "{stem}", key: id, settle: 0s}\n'
        'sink: {type: sql, url: "sqlite:///target.db"}\n'
        f"{further}\n"
    )
    return path


def attributes_of(span: Span) -> dict[str, Any]:
    return {each.key: each.value for each in span.attributes}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_sends_its_slices_as_spans_and_its_metrics(tmp_path: Path, workers: int) -> None:
    before_ns = time.time_ns() // 1_000_000 * 1_000_000
    with receiving() as otlp:
        path = write_pipeline(
            tmp_path,
            f"workers: {workers}\notel: {{endpoint: '{otlp.address}/', headers: {{api-key: k}}}}",
        )
        ran = start("run", path, "--once")
        _, said = ran.communicate(timeout=PATIENCE_S)
        assert ran.returncode == 0, said

    [whole] = [span for span in spans_of(otlp) if not span.parent_span_id]
    [applying] = [span for span in spans_of(otlp) if span.parent_span_id]
    attributes = attributes_of(whole)
    assert (whole.name, applying.name) == ("shop/sql", "apply")
    assert applying.parent_span_id == whole.span_id
    assert attributes["headwater.rows"].int_value == 3
    assert [each.string_value for each in attributes["headwater.tables"].array_value.values] == [
        "orders"
    ]
    assert before_ns <= whole.start_time_unix_nano <= applying.start_time_unix_nano
    assert applying.end_time_unix_nano == whole.end_time_unix_nano <= time.time_ns()
    assert {each.headers["api-key"] for each in otlp.received} == {"k"}
    assert {each.headers["Content-Type"] for each in otlp.received} == {"application/x-protobuf"}

    metrics = last_metrics(otlp)
    sink = {"pipeline": "shop", "task": "sql", "table": "orders"}
    assert (sink, 3.0) in metrics["headwater_rows"]
    done = {"pipeline": "shop", "task": "sql", "state": "done"}
    assert (done, 1.0) in metrics["headwater_task_state"]
    assert metrics.keys() <= {spec.name.removesuffix("_total") for spec in METRICS}


@pytest.mark.slow
def test_a_collector_that_is_gone_does_not_keep_a_run_from_its_end(tmp_path: Path) -> None:
    with receiving() as otlp:
        gone = otlp.address
    path = write_pipeline(tmp_path, f"workers: 0\notel: {{endpoint: '{gone}'}}")

    ran = start("run", path, "--once")
    _, said = ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == 0, said
    with closing(sqlite3.connect(tmp_path / "target.db")) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (3,)


def test_pipelines_with_the_same_settings_share_an_exporter_until_none_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = list[str](), list[str]()

    class Recorded:
        def __init__(self, settings: Any) -> None:
            self.settings = settings
            made.append(settings.endpoint)

        def close(self) -> None:
            closed.append(self.settings.endpoint)

    monkeypatch.setattr(otlp_export, "OtlpCollector", Recorded)
    with_otel = one(write_pipeline(tmp_path, "otel: {endpoint: 'http://127.0.0.1:1'}"))
    without = one(write_pipeline(tmp_path, ""))

    async def edit() -> None:
        exports = OtlpExports(lambda: {"pipelines": {}})
        exports.know(with_otel)
        exports.know(with_otel)
        assert (made, closed) == (["http://127.0.0.1:1"], [])
        exports.know(without)
        await exports.finish()

    asyncio.run(edit())
    assert (made, closed) == (["http://127.0.0.1:1"], ["http://127.0.0.1:1"])


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    loaded = one(write_pipeline(tmp_path, "otel: {endpoint: 'http://127.0.0.1:1'}"))

    with pytest.raises(ConfigError, match="not installed") as refused:
        OtlpExports(lambda: {"pipelines": {}}).know(loaded)

    assert refused.value.hint == "pip install 'headwater[otel]'"


@pytest.mark.slow
def test_nothing_is_loaded_for_a_file_without_it(tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, "")
    program = (
        "import os, pathlib, sys, headwater.pipelines.running.run\n"
        "from headwater.pipelines.file.loader import load\n"
        "from headwater.pipelines.watching.otlp_export import OtlpExports\n"
        f"[loaded] = load(pathlib.Path({str(path)!r}), environment=os.environ)\n"
        "OtlpExports(dict).know(loaded)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
