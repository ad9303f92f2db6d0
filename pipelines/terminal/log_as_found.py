"""The log of a pipeline as it is just now, for who wants to look and not to make one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.running.log_clients import kafka_settings
from headwater.pipelines.terminal.resting_log import PROPERTIES, take_or_find


@asynccontextmanager
async def log_as_found(loaded: LoadedPipeline) -> AsyncIterator[KafkaLog | None]:
    """Of whoever runs it; else the directory is opened for as long as this takes. None when there
    is none yet."""
    log = await _open(loaded)
    try:
        yield log
    finally:
        if log is not None:
            await log.close()


async def _open(loaded: LoadedPipeline) -> KafkaLog | None:
    settings = loaded.spec.log
    if settings.type == "kafka":
        return KafkaLog(kafka_settings(loaded, settings.bootstrap))
    data = loaded.directory / settings.path
    try:
        if not (data / PROPERTIES).exists():
            return None
        found = await take_or_find(data)
    except PermissionError:
        raise LogUnavailable(
            "the log of this data directory belongs to another user",
            directory=str(data),
            hint="run the command as the user who runs the pipeline",
        ) from None
    return (
        KafkaLog(KafkaSettings(bootstrap=[found.kafka])) if isinstance(found, Endpoint) else found
    )
