"""The chart's three brokers and their workers start by the commands of its rendering, a broker
comes back by the same command, and a lost disk begins no second cluster."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.certificates import Authority
from tests.deploy.test_chart import of_kind

RENDERING = "chart_cluster.yaml"
DOMAIN = "shop-brokers.data.svc.cluster.local"
PODS, WORKER = range(3), 3
LOOK_S = 0.1


class ChartCluster:
    """Each pod is a process, with its own place for the volume and the same secrets."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ports = [free_port() for _ in PODS]
        authority = Authority(place)
        secrets = place / "secrets"
        secrets.mkdir()
        issued = authority.issue("headwater")
        for name in ("tls.crt", "tls.key"):
            shutil.copy(issued, secrets / name)
        shutil.copy(authority.file, secrets / "ca.crt")
        (secrets / "cluster.secret").write_text("s" * 43)
        (secrets / "token").write_text("a-token-of-the-test")
        [container] = of_kind(RENDERING, "StatefulSet")["spec"]["template"]["spec"]["containers"]
        self._broker: Mapping[str, Any] = container
        self._stack = ExitStack()

    def broker(self, index: int, *, begins: bool = True) -> "subprocess.Popen[str]":
        """`begins`: by the rendering with `brokers.begin`, else by what it is without."""
        words = [*(self._broker["command"] if begins else ["headwater"]), *self._broker["args"]]
        return self._start(words, index, {"POD_INDEX": str(index)})

    def worker(self) -> "subprocess.Popen[str]":
        [container] = of_kind(RENDERING, "Deployment")["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: self._here(each["value"], WORKER) for each in container["env"]}
        pipeline = of_kind(RENDERING, "ConfigMap")["data"]["pipeline.yaml"]
        (self.place / "pipeline.yaml").write_text(self._here(pipeline, WORKER))
        return self._start(["headwater", *container["args"]], WORKER, variables)

    def status(self, index: int) -> Mapping[str, Any]:
        """As `kubectl exec` asks in a pod; nothing while it has no answer."""
        words = ["headwater", "cluster", "status", "--json", "--data=/var/lib/headwater/log"]
        asked = subprocess.run(
            [self._here(word, index) for word in words],
            env=self._variables({}),
            capture_output=True,
            text=True,
            check=False,
        )
        return dict(json.loads(asked.stdout)) if asked.stdout else {}

    def volume(self, index: int) -> Path:
        return self.place / f"volume-{index}"

    def said(self, index: int) -> str:
        return (self.place / f"said-{index}").read_text()[-4_000:]

    def close(self) -> None:
        self._stack.close()

    def _start(
        self, words: Sequence[str], index: int, variables: Mapping[str, str]
    ) -> "subprocess.Popen[str]":
        self.volume(index).mkdir(exist_ok=True)
        output = self._stack.enter_context((self.place / f"said-{index}").open("a"))
        process = start_owned(
            [self._here(word, index) for word in words],
            env=self._variables(variables),
            stdout=output,
            stderr=output,
            text=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _variables(self, more: Mapping[str, str]) -> Mapping[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, **more, "PATH": path}

    def _here(self, word: str, index: int) -> str:
        """Kubernetes' own variables, addresses of pods and directories as they are in the test."""
        word = word.replace("$(POD_INDEX)", str(index))
        word = word.replace("$(POD_NAME)", f"shop-brokers-{index}")
        for pod, port in enumerate(self._ports):
            word = word.replace(f"shop-brokers-{pod}.{DOMAIN}:9092", f"127.0.0.1:{port}")
        if index in PODS:
            word = word.replace("0.0.0.0:9092", f"127.0.0.1:{self._ports[index]}")
        word = word.replace("0.0.0.0:8471", "127.0.0.1:0")
        for name in ("brokers", "tls", "token"):
            word = word.replace(f"/etc/headwater-{name}/", f"{self.place}/secrets/")
        word = word.replace("/etc/headwater/", f"{self.place}/")
        word = word.replace("/mnt/", f"{self.place}/")
        return word.replace("/var/lib/headwater", str(self.volume(index)))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChartCluster]:
    cluster = ChartCluster(tmp_path)
    yield cluster
    cluster.close()


def until_all_vote(cluster: ChartCluster, brokers: Sequence["subprocess.Popen[str]"]) -> None:
    while True:
        for index, process in enumerate(brokers):
            assert process.poll() is None, f"broker {index} has ended: {cluster.said(index)}"
        told = cluster.status(1).get("data") or {}
        if told.get("quorum", "").endswith("voters 0 1 2") and not told["problems"]:
            return
        time.sleep(LOOK_S)


def orders_in(target: Path) -> int:
    if not target.exists():
        return 0
    with closing(sqlite3.connect(target, timeout=60)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
            return 0
        return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])


def until_more_orders(cluster: ChartCluster, worker: "subprocess.Popen[str]") -> None:
    before = orders_in(cluster.place / "target.db")
    while orders_in(cluster.place / "target.db") <= before:
        assert worker.poll() is None, f"the worker has ended: {cluster.said(WORKER)}"
        time.sleep(LOOK_S)


@pytest.mark.slow
def test_three_brokers_and_a_worker_go_on_without_any_one_of_them(cluster: ChartCluster) -> None:
    brokers = [cluster.broker(index) for index in PODS]
    until_all_vote(cluster, brokers)
    worker = cluster.worker()
    until_more_orders(cluster, worker)

    for index in PODS:
        brokers[index].kill()
        brokers[index].wait()
        until_more_orders(cluster, worker)
        brokers[index] = cluster.broker(index)
        until_all_vote(cluster, brokers)

    until_more_orders(cluster, worker)


@pytest.mark.slow
def test_a_lost_volume_of_the_first_broker_begins_no_second_cluster(cluster: ChartCluster) -> None:
    brokers = [cluster.broker(index) for index in PODS]
    until_all_vote(cluster, brokers)
    begun = cluster.status(1)["data"]["cluster_id"]

    brokers[0].kill()
    brokers[0].wait()
    shutil.rmtree(cluster.volume(0))
    refused = cluster.broker(0)
    refused.wait()
    brokers[0] = cluster.broker(0, begins=False)
    until_all_vote(cluster, brokers)

    assert refused.returncode == 2, cluster.said(0)
    assert "leave out --begin" in cluster.said(0)
    assert cluster.status(0)["data"]["cluster_id"] == begun
