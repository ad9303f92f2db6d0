"""The log of a pipeline as it is just now, for who wants to look and not to make one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core_log.client import KafkaLog, KafkaSettings
from core_log.embedded import EmbeddedLog
from core_log.endpoint import FILE_NAME, decode_endpoint
from core_log.errors import LogUnavailable
from core_log.settings import BrokerSettings
from pipelines.file.loading import LoadedPipeline
from pipelines.terminal.log_address import is_running


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
        return KafkaLog(
            KafkaSettings(bootstrap=list(settings.bootstrap), security=loaded.log_security)
        )
    data = loaded.directory / settings.path
    try:
        endpoint = decode_endpoint((data / FILE_NAME).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        endpoint = None
    except PermissionError:
        raise LogUnavailable(
            "the log of this data directory belongs to another user",
            directory=str(data),
            hint="run the command as the user who runs the pipeline",
        ) from None
    if endpoint is not None and is_running(endpoint.pid):
        return KafkaLog(KafkaSettings(bootstrap=[endpoint.kafka]))
    if not (data / "meta.properties").exists():
        return None
    return await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"))
