"""A Spark cluster of its own on loopback: a master and workers as processes, from the wheel."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.free_port import free_port

STOP_S_MAX = 120
ALIVE = "New state: ALIVE"
PACKAGE = "org.apache.spark.deploy"


@contextmanager
def standalone_cluster(place: Path, *, workers: int) -> Iterator[str]:
    """The master's address; every worker has one core."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    started = [_launch("master.Master", "--port", str(port), "--webui-port", "0", log=place / "m")]
    try:
        _await_alive(place / "m", started[0])
        for number in range(workers):
            arguments = ["--cores", "1", "--memory", "600m", "--webui-port", "0"]
            arguments += ["--work-dir", str(place / f"work-{number}"), address]
            started.append(_launch("worker.Worker", *arguments, log=place / f"w{number}"))
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(STOP_S_MAX)


def _launch(program: str, *arguments: str, log: Path) -> "subprocess.Popen[bytes]":
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"{PACKAGE}.{program}", "--host", "127.0.0.1"]
    surroundings = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "128m"}
    surroundings |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *arguments], env=surroundings, stdout=output, stderr=output, cwd=log.parent
        )


def _await_alive(log: Path, process: "subprocess.Popen[bytes]") -> None:
    following = subprocess.Popen(["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE)
    assert following.stdout is not None
    try:
        for line in following.stdout:
            if ALIVE in line.decode(errors="replace"):
                return
            assert process.poll() is None, "the master runs"
    finally:
        following.terminate()
        following.wait(STOP_S_MAX)
        following.stdout.close()
