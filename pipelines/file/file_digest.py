"""A digest of a pipeline file as it is written, by which machines see that they have the same."""

import hashlib
import json

from headwater.config.document import MappingNode, plain

PROCESS_KEYS = ("workers", "tests", "http", "notify")
"""Keys of a pipeline file that change nothing of a running task."""
MACHINE_KEYS = ("path", "listen", "cluster", "fsync", "bootstrap", "security", "rack")
"""Keys of `log` that say how one machine reaches the log."""
DIGITS = 32


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
