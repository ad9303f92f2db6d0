"""The keys of a pipeline file under `http`, `otel` and `openlineage`: HTTP served and called."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, model_validator

from headwater.core_log.foundation.endpoint import is_loopback, parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import DurationMs, Texts, YamlSettings

ADDRESS = r"^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$"


class HttpSettings(YamlSettings):
    """A fixed address of the HTTP API and the metrics, beside the one in `endpoint.json`."""

    listen: str = Field("", pattern=rf"{ADDRESS}|^$", examples=["127.0.0.1:8471"])
    """HOST:PORT; beyond loopback it needs a token file, a certificate and its key."""
    token_file: Path | None = Field(None, examples=["/etc/headwater/token"])
    """File with the token that requests must have, of at least 16 characters; written with a new
    token if it does not exist, and read again by each request."""
    hosts: Texts = Field((), examples=[["metrics.example.org"]])
    """Names by which clients reach this address, beside those of loopback and of `listen`; with a
    port if a proxy uses another one."""
    certificate_file: Path | None = None
    """PEM file with the certificate and its chain, for TLS."""
    key_file: Path | None = None
    """PEM file with the key of that certificate."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not self.listen:
            if self.model_fields_set - {"listen"}:
                raise ValueError("http.listen is missing")
            return self
        try:
            host, _ = parse_address(self.listen)
        except ConfigError as error:
            raise ValueError(error.problem) from None
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("a certificate needs its key, and a key its certificate")
        if not is_loopback(host) and (self.certificate_file is None or self.token_file is None):
            raise ValueError(
                "an address beyond loopback needs http.certificate_file, http.key_file and "
                "http.token_file"
            )
        return self

    def beside(self, directory: Path) -> Self:
        """Returns these settings with relative files resolved from `directory`."""
        names = ("token_file", "certificate_file", "key_file")
        found: dict[str, Any] = {
            name: directory / path for name in names if (path := getattr(self, name))
        }
        return self.model_copy(update=found)


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
