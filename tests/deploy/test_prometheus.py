"""Alert rules and dashboard are queries that Prometheus answers from a pipeline that it scrapes."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipelines.watching.metrics import METRICS
from scripts.free_port import free_port
from tests.deploy import prometheus_server
from tests.deploy.prometheus_server import ALERTS, ROOT, alerts, ask, start_prometheus, until
from tests.pipelines.run_process import end, start

DASHBOARD = ROOT / "deploy/grafana/headwater.json"
PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, rate: 100}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 100ms}
verify: {every: 1s}
"""
ELSEWHERE = re.compile(r"retained_wal|table_(small_)?files|snapshot_|verified_equal.* == 0")
"""Metrics of PostgreSQL, of lakes, of snapshots, and of tables that differ."""
NAME = re.compile(r"\bheadwater_[a-z_]+")


@pytest.fixture(scope="module")
def programs() -> Path:
    return prometheus_server.programs()


def panel_queries() -> dict[str, str]:
    """The queries of the dashboard as Grafana sends them, by panel."""
    board = json.loads(DASHBOARD.read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$pipeline", ".*")
        .replace("$__rate_interval", "10s")
        for panel in board["panels"]
        for target in panel["targets"]
    }


def test_queries_name_metrics_that_exist() -> None:
    queries = [rule["expr"] for rule in alerts()] + list(panel_queries().values())

    named = {name for query in queries for name in NAME.findall(query)}

    assert named <= {spec.name for spec in METRICS}


def test_every_alert_has_its_paragraph_in_the_production_page() -> None:
    page = (ROOT / "docs/production.md").read_text()

    for rule in alerts():
        assert f"### {rule['alert']}\n" in page
        assert rule["annotations"]["runbook"] == f"docs/production.md#{rule['alert'].lower()}"


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_is_quiet_otherwise(programs: Path) -> None:
    ran = subprocess.run(
        [programs / "promtool", "test", "rules", "alerts_test.yaml"],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
    )
    tested = (ALERTS.parent / "alerts_test.yaml").read_text()

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(f'alertname="{rule["alert"]}"' in tested for rule in alerts())


@pytest.fixture
def processes() -> "Iterator[list[subprocess.Popen[str]]]":
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_pipeline_is_scraped_across_a_restart_and_answers_every_query(
    programs: Path, tmp_path: Path, processes: "list[subprocess.Popen[str]]"
) -> None:
    file, token = tmp_path / "pipeline.yaml", tmp_path / "token"
    file.write_text(PIPELINE)
    address = f"127.0.0.1:{free_port()}"
    run = ["run", file, "-q", "--http", address, "--token-file", token]
    processes.append(start(*run))
    until(token.exists, processes)
    prometheus, server = start_prometheus(programs, tmp_path, address, token)
    processes.append(server)

    def starts() -> set[str]:
        found = ask(prometheus, "max_over_time(headwater_start_timestamp_seconds[1h])")
        return {sample["value"][1] for sample in found}

    until(
        lambda: bool(starts()) and bool(ask(prometheus, "headwater_verified_equal == 1")), processes
    )
    first = starts()
    killed = processes.pop(0)
    end(killed, signal.SIGKILL)
    processes.append(start(*run))
    until(lambda: starts() > set() and starts() != first, processes)

    for query in panel_queries().values():
        if ELSEWHERE.search(query):
            ask(prometheus, query)  # it is answered, with whatever there is
        else:
            until(lambda query=query: bool(ask(prometheus, query)), processes)  # type: ignore[misc]
    firing = {rule["alert"]: ask(prometheus, rule["expr"]) for rule in alerts()}
    assert not firing["HeadwaterDown"] and not firing["HeadwaterTablesDiffer"]
    metrics = scraped(address, token)
    checked = subprocess.run(
        [programs / "promtool", "check", "metrics"], input=metrics, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def scraped(address: str, token: Path) -> str:
    request = urllib.request.Request(
        f"http://{address}/metrics",
        headers={"Authorization": f"Bearer {token.read_text().strip()}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())
