"""The pipeline files that a path means, and a digest of each as it is written."""

import hashlib
import json
from pathlib import Path

from headwater.config.document import MappingNode, plain
from headwater.core_log.foundation.errors import ConfigError

SUFFIXES = (".yaml", ".yml")
FILES_MAX = 1_000
PROCESS_KEYS = ("workers", "tests", "http", "notify")
"""Keys of a pipeline file that change nothing of a running task."""
MACHINE_KEYS = ("path", "listen", "cluster", "fsync", "bootstrap", "security", "rack")
"""Keys of `log` that say how one machine reaches the log."""
DIGITS = 32


def files_at(path: Path) -> list[Path]:
    """The file itself, or a directory's pipeline files in the order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(
        each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith(".")
    )
    if not found:
        raise ConfigError(
            "the directory has no pipeline file", directory=str(path), hint="headwater init"
        )
    if len(found) > FILES_MAX:
        raise ConfigError(
            "the directory has too many pipeline files", files=len(found), at_most=FILES_MAX
        )
    return found


def file_digest(root: MappingNode) -> str:
    """References stay as they are written: values of the environment and secrets are each
    machine's own."""
    written = plain(root)
    said = {key: value for key, value in written.items() if key not in PROCESS_KEYS}
    log = said.pop("log", None)
    if isinstance(log, dict):
        said["log"] = {key: value for key, value in log.items() if key not in MACHINE_KEYS}
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
