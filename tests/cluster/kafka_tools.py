"""Kafka's command line tools in one Java process for all calls, and their words made comparable."""

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.owned_process import start_owned

SOURCE = Path(__file__).parent / "tool_runner" / "ToolRunner.java"
FILES = Path(__file__).parent / "tool_sessions"
"""Where commands find the files that they name."""
SEPARATOR = "\x01"
TOOLS: Mapping[str, str] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
ADDRESS_LAST = "kafka-cluster"
"""The address belongs to its subcommands."""
SUBSTITUTES: Sequence[tuple[str, str]] = (
    (r"\[[\w -]+(?: \| [\w -]+)?\] (?:WARN|ERROR) .*\n", ""),  # what libraries log
    (r"\tat .*\n", ""),
    (r"\b[\w-]{22}\b(?=[\s\",\]]|$)", "ID"),
    (r"\b1[67]\d{11}\b", "TIME"),
    (r"(?<=\"logDir\":)\"[^\"]*\"|(?<=\"log_dirs\":)\[[^]]*\]", "DIRECTORY"),
    (r"(?<=\"size\":)\d+", "SIZE"),
    (r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag\w*|Epoch):\s+-?\d+", r"\1: N"),
    (r"(?m)^\d\s+ID\s+\d+\s+\d+\s+TIME\s+TIME\s+\w+", "NODE ID END LAG TIME TIME ROLE"),
    (r"(?<=\")CONTROLLER(?=://)", "PLAINTEXT"),
    (r"LastKnownElr: \d+", "LastKnownElr: "),
    (r"(?m)^\d+ records sent, .*", "RECORDS"),
    (r"(?m)^(writer\s+)\d+\b", r"\1NODE"),
    (r"(?m)^\d+(?=\s+writer\b)", "NODE"),
    (r"(?m)(TIME[ \t]+)\d+[ \t]*$", r"\1DURATION"),
    (r"[ \t]+(?=\n)", ""),
    (r"(?<=\S)[ \t]{2,}", " "),
)
"""What differs from run to run, and the widths of columns that follow from it."""
IN_SYNC = re.compile(r"(?<=Isr: )[\d,]+")
ERROR = re.compile(r"\b[A-Z]\w+(?:Exception|Error)\b")


class Said(NamedTuple):
    text: str
    exit_code: int


class KafkaTools:
    """As the scripts in Kafka's `bin`, with the cluster's address put in."""

    def __init__(self, java: Sequence[str], addresses: Mapping[int, str]) -> None:
        self._addresses = addresses
        self._process: subprocess.Popen[str] = start_owned(
            [*java, SOURCE],
            cwd=FILES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> Said:
        """Standard output and error of one command, as a shell has it."""
        name, *arguments = shlex.split(command)
        address = ["--bootstrap-server", ",".join(self._addresses.values())]
        is_last = name == ADDRESS_LAST
        words = [TOOLS[name], *([*arguments, *address] if is_last else [*address, *arguments])]
        process = self._process
        assert process.stdin is not None and process.stdout is not None, "they are pipes"
        process.stdin.write(SEPARATOR.join(words) + "\n")
        process.stdin.flush()
        said = list[str]()
        for line in process.stdout:
            text, end, code = line.rpartition(SEPARATOR)
            if end:
                return Said("".join([*said, text]), int(code))
            said.append(line)
        raise AssertionError("the process of the tools has ended")

    def normal(self, said: Said) -> str:
        """The text without what differs from run to run; of a failure only its errors, since their
        words are each maker's own."""
        text = said.text
        for node, address in self._addresses.items():
            host, _, port = address.rpartition(":")
            text = re.sub(rf"{host}[: ]{port}\b", f"node-{node}", text)
        errors = sorted(set(ERROR.findall(text)) - {"ExecutionException"})
        if errors or said.exit_code:
            return f"exit code {said.exit_code}: {' '.join(errors)}\n"
        for pattern, substitute in SUBSTITUTES:
            text = re.sub(pattern, substitute, text)
        text = IN_SYNC.sub(lambda each: ",".join(sorted(each[0].split(","))), text)
        return text.strip() + "\n"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
