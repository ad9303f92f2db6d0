"""Three nodes, or more, in processes of their own, of Apache Kafka or of ours, to be killed,
frozen, stopped and wiped."""

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scripts.free_port import free_ports
from scripts.owned_process import start_owned
from tests.cluster.links import Links

PROJECT = Path(__file__).resolve().parents[2]
COUNT = 3
STOP_S_MAX = 60
"""A node that cannot hand over what it leads waits for others; after this time it is killed."""

PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.num.partitions=4
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
QUICK = """
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
controller.quorum.fetch.timeout.ms=1500
controller.quorum.election.timeout.ms=1000
log.cleaner.backoff.ms=500
"""
"""Kafka's default session is nine seconds, for which every scenario would wait."""
NEAR = """
broker.rack={rack}
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
"""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class Nodes:
    """Nodes 1 to 3, or more, each under its address and with its files, whatever happens to its
    process."""

    def __init__(self, directory: Path, links: Links | None = None, count: int = COUNT) -> None:
        """With links each node runs in a namespace of its own, and they can be cut."""
        self.directory, self.links = directory, links
        ports = free_ports(count)
        self.addresses: Mapping[int, str] = {
            node: f"127.0.0.1:{port}" for node, port in enumerate(ports, start=1)
        }
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.has_begun = False
        self.paused: set[int] = set()

    @property
    def bootstrap(self) -> Sequence[str]:
        return list(self.addresses.values())

    @property
    def awake(self) -> list[int]:
        """Nodes that run, and are not frozen."""
        return sorted(self._processes.keys() - self.paused)

    @property
    def pids(self) -> list[int]:
        return [each.pid for _, each in sorted(self._processes.items())]

    @abstractmethod
    def command(self, node: int) -> Sequence[object]: ...

    @abstractmethod
    def data(self, node: int) -> Path: ...

    def project(self, node: int) -> Path:
        """Where the code of the node is."""
        return PROJECT

    def logs(self, node: int) -> Path:
        """Where the directories of its partitions are."""
        return self.data(node)

    def ports(self, node: int) -> Sequence[int]:
        """Where others reach it."""
        return [int(self.addresses[node].rpartition(":")[2])]

    def start(self, node: int) -> None:
        """Returns at once, while the node may still be on its way."""
        assert node not in self._processes, "a node has one process"
        with self.output(node).open("ab") as output:
            output.write(b"--- started\n")
            before = self.links.within(node) if self.links else ()
            command = [*before, *self.command(node)]
            self._processes[node] = start_owned(
                command, cwd=self.project(node), stdout=output, stderr=output
            )

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        assert process.poll() is None, f"node {node} ended by itself: {self.last_words(node)}"
        process.kill()
        process.wait()
        self.paused.discard(node)

    def stop(self, node: int) -> None:
        """Asks it to end."""
        process = self._processes.pop(node)
        assert process.poll() is None, f"node {node} ended by itself: {self.last_words(node)}"
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def upgrade(self, node: int) -> None:
        """Stops it in order, and starts it with the code of today."""
        raise AssertionError("these nodes have one version")

    def downgrade(self, node: int) -> None:
        """Stops it in order, and starts it with the older code again."""
        raise AssertionError("these nodes have one version")

    def pause(self, node: int) -> None:
        """Returns once no thread of it runs any more."""
        process = self._processes[node]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused.add(node)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)
        self.paused.discard(node)

    def wipe(self, node: int) -> None:
        """Its disk is gone."""
        assert node not in self._processes, "the disk of a running node stays"
        shutil.rmtree(self.data(node))

    def heal(self) -> None:
        """All run again."""
        for node in set(self.paused):
            self.resume(node)
        for node in self.addresses.keys() - self._processes.keys():
            self.start(node)

    def check(self) -> None:
        """Fails if a node has ended that nobody ended."""
        for node, process in self._processes.items():
            code = process.poll()
            assert code is None, f"node {node} ended by itself ({code}): {self.last_words(node)}"

    def stop_all(self) -> None:
        """Asks all at once: the last ones have nobody to hand over to."""
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + STOP_S_MAX
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def end(self) -> None:
        """Leaves no process, whatever state the nodes are in."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def output(self, node: int) -> Path:
        return self.directory / f"node-{node}.log"

    def last_words(self, node: int) -> str:
        return self.output(node).read_text(errors="replace")[-3000:]


class KafkaNodes(Nodes):
    """Apache Kafka, each node as broker and controller."""

    def __init__(
        self,
        directory: Path,
        java: Sequence[str],
        links: Links | None = None,
        *,
        properties: str = QUICK,
        racks: Mapping[int, str] | None = None,
        count: int = COUNT,
    ) -> None:
        super().__init__(directory, links, count)
        self._java = java
        self._controllers = dict(zip(self.addresses, free_ports(count), strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items())
        for node in self.addresses:
            text = PROPERTIES.format(
                node=node,
                voters=voters,
                port=super().ports(node)[0],
                controller=self._controllers[node],
                data=self.data(node),
            )
            place = NEAR.format(rack=racks[node]) if racks else ""
            self._properties(node).write_text(text + properties + place)

    def _properties(self, node: int) -> Path:
        return self.directory / f"node-{node}.properties"

    def data(self, node: int) -> Path:
        return self.directory / f"data-{node}"

    def ports(self, node: int) -> Sequence[int]:
        return [*super().ports(node), self._controllers[node]]

    def command(self, node: int) -> Sequence[object]:
        return [*self._java, "kafka.Kafka", self._properties(node)]

    def start(self, node: int) -> None:
        if not self.data(node).exists():
            tool = [*self._java, "kafka.tools.StorageTool", "format"]
            command = [*tool, "-t", CLUSTER_ID, "-c", str(self._properties(node))]
            subprocess.run(command, check=True, capture_output=True)
        super().start(node)


class HeadwaterNodes(Nodes):
    """Ours; the first begins the cluster and the others join it."""

    def __init__(
        self,
        directory: Path,
        links: Links | None = None,
        *,
        settings: Sequence[str] = (),
        racks: Mapping[int, str] | None = None,
        former: Path | None = None,
        secret: Path | None = None,
        count: int = COUNT,
    ) -> None:
        """`secret` is the cluster's. With `former`, the directory of an older version, they run
        that until they are upgraded."""
        super().__init__(directory, links, count)
        self._settings, self._racks, self._secret = settings, racks or {}, secret
        self._former = former or PROJECT
        self._projects = dict.fromkeys(self.addresses, self._former)

    def data(self, node: int) -> Path:
        return self.directory / f"data-{node}"

    def logs(self, node: int) -> Path:
        return self.data(node) / "log"

    def project(self, node: int) -> Path:
        return self._projects[node]

    def upgrade(self, node: int) -> None:
        self._replace(node, PROJECT)

    def downgrade(self, node: int) -> None:
        self._replace(node, self._former)

    def _replace(self, node: int, project: Path) -> None:
        self.stop(node)
        self._projects[node] = project
        self.start(node)

    def command(self, node: int) -> Sequence[object]:
        program = [sys.executable, "-m", "headwater.pipelines.cli", "broker"]
        place = ["--data", self.data(node), "--listen", self.addresses[node]]
        settings = [f"node_id={node}", "internal_partitions=4", "auto_create_topics=false"]
        settings += self._settings
        others = [address for each, address in self.addresses.items() if each != node]
        is_founder = node == 1 and not self.has_begun
        self.has_begun = True
        return [
            *program,
            *place,
            *([] if is_founder else ["--join", ",".join(others)]),
            *(["--rack", self._racks[node]] if self._racks else []),
            *(["--cluster-secret", self._secret] if self._secret else []),
            *(word for each in settings for word in ("--set", each)),
        ]
