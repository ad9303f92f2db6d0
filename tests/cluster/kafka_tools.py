"""Kafka's command line tools, in one Java process for all calls."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.owned_process import start_owned

SOURCE = Path(__file__).parent / "tool_runner" / "ToolRunner.java"
SEPARATOR = "\x01"
TOOLS: Mapping[str, str] = {
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class Said(NamedTuple):
    text: str
    exit_code: int


class KafkaTools:
    """As the scripts in Kafka's `bin`, with the cluster's address put in."""

    def __init__(self, java: Sequence[str], bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[str] = start_owned(
            [*java, SOURCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> Said:
        """Standard output and error of one command, as a shell has it."""
        name, *arguments = shlex.split(command)
        process = self._process
        assert process.stdin is not None and process.stdout is not None, "they are pipes"
        words = [TOOLS[name], "--bootstrap-server", self._bootstrap, *arguments]
        if name in ("kafka-cluster", "kafka-metadata-quorum", "kafka-features"):
            words = [TOOLS[name], *_with_address(name, self._bootstrap, arguments)]
        process.stdin.write(SEPARATOR.join(words) + "\n")
        process.stdin.flush()
        said = list[str]()
        for line in process.stdout:
            text, end, code = line.rpartition(SEPARATOR)
            if end:
                return Said("".join([*said, text]), int(code))
            said.append(line)
        raise AssertionError("the process of the tools has ended")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _with_address(name: str, bootstrap: str, arguments: Sequence[str]) -> Sequence[str]:
    """Where subcommands have the address in another place."""
    if name == "kafka-cluster":
        return [*arguments, "--bootstrap-server", bootstrap]
    return ["--bootstrap-server", bootstrap, *arguments]
