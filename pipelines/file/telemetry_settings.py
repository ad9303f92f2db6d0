"""The keys of a pipeline file under `otel` and `openlineage`: who is told what pipelines do."""

from typing import Annotated

from pydantic import Field, SecretStr

from headwater.core_log.foundation.settings import DurationMs, YamlSettings

WEB_ADDRESS = r"^https?://[^\s/?#]+(/[^\s?#]*)?$"


class OtelSettings(YamlSettings):
    """Traces and metrics by OTLP over HTTP, for a collector; needs the extra `headwater[otel]`."""

    endpoint: str = Field("", pattern=rf"{WEB_ADDRESS}|^$", examples=["http://127.0.0.1:4318"])
    """Base address of the collector, without `/v1/traces`. Everything else about the exporter, such
    as certificates and compression, is set by the SDK's own variables `OTEL_EXPORTER_OTLP_*`."""
    headers: dict[str, SecretStr] = Field({}, examples=[{"api-key": "${env:OTLP_KEY}"}])
    """Headers of each request, by reference where they are secret."""
    metrics_every_ms: Annotated[DurationMs, Field(ge=1_000)] = 60_000
    """How often metrics are sent."""


class OpenLineageSettings(YamlSettings):
    """Lineage of the sinks' tables, as events of OpenLineage over HTTP; needs the extra
    `headwater[openlineage]`."""

    url: str = Field("", pattern=rf"{WEB_ADDRESS}|^$", examples=["http://127.0.0.1:5000"])
    """Base address of the server, such as Marquez; events are sent to its `/api/v1/lineage`."""
    api_key: SecretStr = Field(SecretStr(""), examples=["${env:OPENLINEAGE_API_KEY}"])
    """Key that is sent as `Authorization: Bearer`, by reference."""
    namespace: str = Field("headwater", min_length=1)
    """Namespace of the jobs, of which there is one for each sink: `<pipeline>.<sink>`."""
