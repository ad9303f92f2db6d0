"""Clients of the log with what a pipeline's own settings ask of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings
from headwater.pipelines.terminal.log_place import security_of_log

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.running.tasks import OpenLog

MEMBER_CLIENT = {
    "client_id": "headwater-workers",
    "request_wait_ms_max": 3_000,
    "retry_for_ms": 6_000,
}
"""Settings of the client that keeps a run in the group of all runs: a broker that is silent is left
long before the session is over."""


def kafka_settings(loaded: "LoadedPipeline", bootstrap: Sequence[str]) -> KafkaSettings:
    log = loaded.spec.log
    is_ours = log.type == "embedded"  # its owner is on this machine, and busy at most
    settings = KafkaSettings(
        bootstrap=list(bootstrap),
        security=security_of_log(log, data=loaded.log_path, directory=loaded.directory),
        rack=log.rack,
        client_id=f"headwater-{loaded.name}",
        transaction_timeout_ms=loaded.spec.limits.transaction_timeout_ms,
    )
    if is_ours:
        return settings
    return settings.model_copy(update={"first_answer_ms_max": FIRST_ANSWER_MS})


def log_opener(client_for: "Callable[[LoadedPipeline], KafkaLog]") -> "OpenLog":
    """Each task has a client of its own, so that none waits for another's answers."""

    @asynccontextmanager
    async def open_log(loaded: "LoadedPipeline") -> AsyncIterator[KafkaLog]:
        log = client_for(loaded)
        try:
            yield log
        finally:
            await log.close()

    return open_log
