"""Pipelines in Kafka Connect's words: a task is a connector, each of its tables a Connect task."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.config.document import ListNode, MappingNode, ScalarNode, YamlNode, read_document
from headwater.pipelines.file.log_settings import files_at

SOURCE, VERIFY = "source", "verify"
STATES = {
    "starting": "UNASSIGNED",
    "retrying": "UNASSIGNED",
    "quarantined": "FAILED",
    "paused": "PAUSED",
    "stopped": "PAUSED",
    "done": "PAUSED",
}
"""All others are RUNNING. Newer states of Connect's own are not known to every tool."""
SECRET = re.compile(r"pass|secret|token|credential|private|key(?:$|\.)|url|dsn|uri", re.IGNORECASE)
MASK = "***"
REFERENCE = re.compile(r"\$\{(?:(?!:-)[^{}])+\}")

Status = Mapping[str, Any]


class ConnectorNames:
    """`shop.source` and `shop.lake`, as long as the status has them."""

    def __init__(self, status: Status) -> None:
        self._pipelines: Mapping[str, Any] = status["pipelines"]

    def all(self) -> list[str]:
        return sorted(
            f"{pipeline}.{task}"
            for pipeline, each in self._pipelines.items()
            for task in each["tasks"]
            if task != VERIFY
        )

    def split(self, connector: str) -> tuple[str, str] | None:
        """The pipeline and its task."""
        pipeline, _, task = connector.rpartition(".")
        found = self._pipelines.get(pipeline, {}).get("tasks", {})
        return (pipeline, task) if task in found and task != VERIFY else None

    def tables(self, pipeline: str, task: str) -> list[str]:
        """In the order of their numbers as Connect tasks."""
        tables = self._pipelines[pipeline]["tables"]
        return sorted(name for name, each in tables.items() if task in each["tasks"])

    def task(self, pipeline: str, task: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._pipelines[pipeline]["tasks"][task]
        return found

    def table(self, pipeline: str, task: str, table: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._pipelines[pipeline]["tables"][table]["tasks"][task]
        return found


def kind_of(task: str) -> str:
    return "source" if task == SOURCE else "sink"


def state_of(facts: Mapping[str, Any], worker: str, version: str) -> dict[str, Any]:
    state = STATES.get(facts["state"], "RUNNING")
    found = {"state": state, "worker_id": worker, "version": version}
    return found | ({"trace": facts["reason"]} if state == "FAILED" else {})


def file_settings(file: Path | None) -> Mapping[str, Mapping[str, str]]:
    """Returns the settings of each connector as its file has them; references stay, secrets do
    not."""
    found: dict[str, Mapping[str, str]] = {}
    for path in [] if file is None else files_at(file):
        root = read_document(path).root
        if not isinstance(root, MappingNode):
            continue
        pipeline = _text(_inside(root.values.get("pipeline"), "name"))
        for node in _listed(root.values.get("source")):
            found[f"{pipeline}.{SOURCE}"] = _flat(node) | {"headwater.file": path.name}
        for node in _listed(root.values.get("sink")):
            flat = _flat(node)
            name = flat.get("name", flat.get("type", ""))
            found[f"{pipeline}.{name}"] = flat | {"headwater.file": path.name}
    return found


def _inside(node: YamlNode | None, name: str) -> YamlNode | None:
    return node.values.get(name) if isinstance(node, MappingNode) else node


def _listed(node: YamlNode | None) -> list[YamlNode]:
    if node is None:
        return []
    return list(node.items) if isinstance(node, ListNode) else [node]


def _text(node: YamlNode | None) -> str:
    return node.text if isinstance(node, ScalarNode) else ""


def _flat(node: YamlNode, prefix: str = "") -> dict[str, str]:
    if isinstance(node, MappingNode):
        found: dict[str, str] = {}
        for name, value in node.values.items():
            found |= _flat(value, f"{prefix}.{name}" if prefix else name)
        return found
    texts = [_text(each) for each in _listed(node)]
    text = ",".join(texts)
    is_secret = SECRET.search(prefix) is not None and not REFERENCE.fullmatch(text)
    return {prefix: MASK if is_secret else text}
