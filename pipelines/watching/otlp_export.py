"""Sends traces and metrics by OTLP to the collectors that pipeline files name."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from math import inf
from typing import TYPE_CHECKING, Any

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.http_settings import OtelSettings
from headwater.pipelines.reports import Report, SliceApplied

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.watching.metrics import MetricSpec, Snapshot

EXPORT_S = 5.0
"""How long a request may take with its retries: the end of a run waits for the last ones."""
TABLES_MAX = 20
"""Tables that a span names."""


class OtlpExports:
    """Call it with every report. While no file has `otel:`, it does nothing and loads nothing."""

    def __init__(self, look: "Callable[[], Snapshot]") -> None:
        self._look = look
        self._collectors: dict[str, OtlpCollector] = {}
        """By pipeline; pipelines with the same settings share one."""
        self._sending = dict["OtlpCollector", asyncio.Task[None]]()
        self._closing = set[asyncio.Task[None]]()

    def know(self, loaded: "LoadedPipeline") -> None:
        """Notes where a pipeline's traces and metrics go, by its file as it is now."""
        settings = loaded.spec.otel
        self._collectors.pop(loaded.name, None)
        if settings.endpoint:
            known = (each for each in self._sending if each.settings == settings)
            collector = next(known, None) or OtlpCollector(settings)
            self._collectors[loaded.name] = collector
            if collector not in self._sending:
                self._sending[collector] = asyncio.create_task(self._send_metrics(collector))
        for unused in self._sending.keys() - self._collectors.values():
            self._close(unused)

    def __call__(self, report: Report) -> None:
        if isinstance(report, SliceApplied) and report.pipeline in self._collectors:
            self._collectors[report.pipeline].trace(report)

    async def finish(self) -> None:
        """Sends what is left, for at most a few seconds."""
        for each in [*self._sending]:
            self._close(each)
        await asyncio.gather(*self._closing)

    def _close(self, collector: "OtlpCollector") -> None:
        sending = self._sending.pop(collector)
        sending.cancel()
        snapshot = self._snapshot_of(collector)

        async def close() -> None:
            await asyncio.wait([sending])
            collector.metrics_of = snapshot
            await asyncio.to_thread(collector.close)

        self._closing.add(asyncio.create_task(close()))

    async def _send_metrics(self, collector: "OtlpCollector") -> None:
        while True:
            await asyncio.sleep(collector.settings.metrics_every_ms / 1_000)
            collector.metrics_of = self._snapshot_of(collector)
            await asyncio.to_thread(collector.send_metrics)

    def _snapshot_of(self, collector: "OtlpCollector") -> "Snapshot":
        """Read on the event loop, where reports change it; it is sent from a thread."""
        found = self._look()
        ours = {
            name: pipeline
            for name, pipeline in found["pipelines"].items()
            if self._collectors.get(name) is collector
        }
        return {**found, "pipelines": ours}


class OtlpCollector:
    """The SDK's exporters for one collector."""

    def __init__(self, settings: OtelSettings) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ConfigError(
                "otel needs packages that are not installed",
                hint="pip install 'headwater[otel]'",
                missing=error.name,
            ) from None
        self.settings = settings
        self.metrics_of: Snapshot | None = None
        """The next metrics; None before the first."""
        base = settings.endpoint.rstrip("/")
        common: dict[str, Any] = {
            "headers": {name: text.get_secret_value() for name, text in settings.headers.items()},
            "timeout": EXPORT_S,
        }
        resource = Resource({"service.name": "headwater", "service.version": version("headwater")})
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
        resource = resource.merge(OTELResourceDetector().detect())
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", **common)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._traces.get_tracer("headwater")
        points = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", **common)
        self._reader = PeriodicExportingMetricReader(points, export_interval_millis=inf)
        self._metrics = MeterProvider([self._reader], resource, shutdown_on_exit=False)
        self._declare()

    def trace(self, report: SliceApplied) -> None:
        """Adds the span of a slice, and inside of it that of the work of the target."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        attributes: dict[str, Any] = {
            "headwater.pipeline": report.pipeline,
            "headwater.task": report.task,
            "headwater.tables": report.tables[:TABLES_MAX],
            "headwater.rows": report.rows,
            "headwater.bytes": report.bytes,
        }
        if report.cut is not None:
            attributes["headwater.cut"] = report.cut
        # Clocks of two machines differ.
        begun_ms = min(report.begun_ms, report.applied_ms)
        committed_ms = min(report.committed_ms, begun_ms)
        whole = self._tracer.start_span(
            f"{report.pipeline}/{report.task}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=committed_ms * 1_000_000,
        )
        applying = self._tracer.start_span(
            "apply",
            set_span_in_context(whole),
            kind=SpanKind.CLIENT,
            start_time=begun_ms * 1_000_000,
        )
        for span in (applying, whole):
            span.end(report.applied_ms * 1_000_000)

    def send_metrics(self) -> None:
        """Blocks until they have arrived, or the collector has refused them."""
        self._reader.force_flush(EXPORT_S * 1_000)

    def close(self) -> None:
        """Sends what is left, and ends the SDK's threads."""
        self.send_metrics()
        self._metrics.shutdown(EXPORT_S * 1_000)
        self._traces.shutdown()

    def _declare(self) -> None:
        """Every metric of the page, under its name; `_total` is added by Prometheus."""
        from headwater.pipelines.watching.metrics import METRICS

        meter = self._metrics.get_meter("headwater")
        for spec in METRICS:
            create = (
                meter.create_observable_counter
                if spec.kind == "counter"
                else meter.create_observable_gauge
            )
            create(
                spec.name.removesuffix("_total"),
                [self._callback(spec)],
                description=spec.meaning,
            )

    def _callback(self, spec: "MetricSpec") -> "Callable[[CallbackOptions], Iterable[Observation]]":
        from opentelemetry.metrics import Observation

        def observe(_: "CallbackOptions") -> "Iterator[Observation]":
            if self.metrics_of is None:
                return
            for labels, value in spec.read(self.metrics_of):
                if value is not None:
                    yield Observation(value, dict(zip(spec.labels, labels, strict=True)))

        return observe
