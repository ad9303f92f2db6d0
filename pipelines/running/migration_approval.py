"""The approval of new generations of topics: a signal for exactly one form of the file."""

import hashlib
import json
import secrets
from typing import TYPE_CHECKING

from headwater.core_log.model.log import Log
from headwater.pipelines.journal.control import MIGRATE, DesiredTaskState, Signal, write_control

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

APPROVED = "asked"
DIGEST_DIGITS = 32


async def approve(loaded: "LoadedPipeline", log: Log, *, now_ms: int) -> None:
    """Approves a migration. The run of the source obeys it, now or after any crash; another edit
    has to be agreed to again."""
    signal = Signal(MIGRATE, "", secrets.token_hex(8), {APPROVED: digest_of(loaded)})
    await write_control(log, loaded.name, [signal], now_ms=now_ms)


def is_approved(loaded: "LoadedPipeline", desired: DesiredTaskState) -> bool:
    return any(
        signal.kind == MIGRATE and signal.options.get(APPROVED) == digest_of(loaded)
        for signal in desired.signals
    )


def digest_of(loaded: "LoadedPipeline") -> str:
    """Names what of a file decides how its topics look. The salt is a secret: it is hashed."""
    spec, source = loaded.spec, loaded.source.settings
    said = [
        spec.pipeline.name,
        hashlib.sha256(spec.pipeline.salt.get_secret_value().encode()).hexdigest(),
        spec.log.model_dump(mode="json", include={"topic", "partitions", "value", "has_schemas"}),
        spec.log.registry,
        [[list(rule.table), rule.mask, list(rule.drop)] for rule in spec.transform],
        source.model_dump(mode="json", include={"keys", "key", "decimal", "time", "binary"}),
    ]
    return hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()[:DIGEST_DIGITS]
