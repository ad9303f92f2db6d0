"""The two servers that are compared: how each is made, started, asked, stopped and killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.wire import first_answer
from scripts.free_port import free_port
from scripts.owned_process import start_owned

ROOT = Path(__file__).resolve().parents[1]
START_S_MAX = 60.0
STOP_S_MAX = 60.0

KAFKA_HEAP = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""What Kafka's own start script sets."""

KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class Process:
    """A server's process, which only we end, by its number."""

    name = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.topic_count = 0
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def command(self) -> list[str]:
        raise AssertionError("each server has its own command")

    def start(self) -> float:
        with (self.directory / "output").open("ab") as output:
            started = time.perf_counter()
            self._process = start_owned(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT
            )
        while time.perf_counter() - started < START_S_MAX:
            if self._process.poll() is not None:
                break
            with suppress(OSError):
                if first_answer("127.0.0.1", self.port, topic_count=self.topic_count):
                    return time.perf_counter() - started
            time.sleep(0.002)
        self.kill()
        said = (self.directory / "output").read_text()[-2000:]
        raise RuntimeError(f"{self.name} does not answer: {said}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Headwater(Process):
    name = "headwater"
    python = Path(sys.executable)

    def command(self) -> list[str]:
        program = str(self.python.with_name("headwater"))
        data = str(self.directory / "data")
        return [program, "broker", "--data", data, "--listen", self.address]


class FormerHeadwater(Headwater):
    """An earlier version, from a checkout of it with its own environment."""

    name = "former"

    def __init__(self, directory: Path, checkout: Path) -> None:
        super().__init__(directory)
        self.python = checkout / ".venv" / "bin" / "python"


class Kafka(Process):
    name = "kafka"

    def __init__(self, directory: Path, jars: Path) -> None:
        super().__init__(directory)
        self._classes = f"{jars}/*"
        properties = KAFKA_PROPERTIES.format(
            port=self.port, controller_port=free_port(), data=directory / "data"
        )
        self._properties = directory / "server.properties"
        self._properties.write_text(properties)
        tool = ["java", "-cp", self._classes, "kafka.tools.StorageTool"]
        cluster = subprocess.run(
            [*tool, "random-uuid"], capture_output=True, text=True, check=True
        ).stdout.split()[-1]
        formatted = [*tool, "format", "-t", cluster, "-c", str(self._properties), "--standalone"]
        subprocess.run(formatted, capture_output=True, check=True)

    def command(self) -> list[str]:
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = ("kafka.Kafka", str(self._properties))
        return ["java", "-server", *KAFKA_HEAP, log, "-cp", self._classes, *main]


def kafka_jars() -> Path | None:
    """Where Apache Kafka's jars are, fetched when need be; says why when they cannot be had."""
    fetched = subprocess.run(
        [ROOT / "scripts/fetch_kafka.sh"], stdout=subprocess.PIPE, text=True, check=False
    )
    return Path(fetched.stdout.strip()) if fetched.returncode == 0 else None


def commit_of(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def machine() -> dict[str, object]:
    """What the figures depend on."""
    model = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "cpus": os.cpu_count(),
        "cpu": model[0].partition(":")[2].strip() if model else "",
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "commit": commit_of(ROOT),
    }
