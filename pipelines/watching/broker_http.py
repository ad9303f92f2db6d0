"""Probes, metrics and backups of a broker that runs no pipelines."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.running.data_directory_lock import disk_space
from headwater.pipelines.watching.http_api import HttpApi, RequestAnswer
from headwater.pipelines.watching.http_listener import HttpListener
from headwater.pipelines.watching.report_stream import ReportStream
from headwater.pipelines.watching.status import StatusBoard

SERVED = ("/healthz", "/readyz", "/metrics", "/backup", "/backup/end")


def broker_http(
    settings: HttpSettings,
) -> Callable[[RunningBroker], AbstractAsyncContextManager[None]]:
    """Serves them at the fixed address as long as the broker runs."""

    @asynccontextmanager
    async def serve(running: RunningBroker) -> AsyncIterator[None]:
        listener = HttpListener(settings)
        broker = running.broker
        board = StatusBoard(broker.clock)
        board.log_problem, board.offline = lambda: broker.store.refused, lambda: broker.offline
        board.disk = lambda: disk_space(broker.settings.data)
        answering = RequestAnswer(
            board, ReportStream(), EmbeddedLog(running), broker.clock, _refuse_pipelines, broker
        )
        api = HttpApi(answering, token=running.token, listener=listener, paths=SERVED)
        try:
            running.write_endpoint(None, control=await api.start())
            yield
        finally:
            board.is_stopping = True
            await api.stop()

    return serve


async def _refuse_pipelines(_: bytes) -> Mapping[str, object]:
    raise ConfigError("a broker runs no pipelines", hint="headwater run FILE")
