"""Settings of the connection to a Kafka-compatible cluster, and its security on the spot."""

from pathlib import Path

from pydantic import Field

from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.settings import SecuritySettings, Settings, TlsSettings
from headwater.core_log.security.principal import LOCAL
from headwater.core_log.security.sasl_mechanisms import derive, read_secret_file

FIRST_ANSWER_MS = 2_000
"""Used by pipelines and commands, so that a wrong address is reported at once."""


class KafkaSettings(Settings):
    """A Kafka-compatible cluster: a Headwater broker, Apache Kafka 4.x or Redpanda."""

    bootstrap: list[str] = Field(min_length=1, examples=[["127.0.0.1:9092"]])
    """HOST:PORT of some brokers; the first that answers names the others."""
    security: SecuritySettings = SecuritySettings()
    """Encryption and authentication of connections; the keys are below."""
    rack: str = ""
    """Where this client is, as Kafka's client.rack: a replica that is in sync in the same rack is
    read instead of the leader."""
    client_id: str = "headwater"
    """Name of this client in the cluster's logs and quotas."""
    connect_wait_ms_max: int = Field(5_000, ge=1)
    """Longest time to connect and agree on versions."""
    first_answer_ms_max: int = Field(60_000, ge=1)
    """Longest time to reach the first broker, before `LogUnavailable`. Pipelines and commands use
    2,000."""
    request_wait_ms_max: int = Field(30_000, ge=1)
    """Longest wait for an answer, before its connection counts as lost."""
    retry_for_ms: int = Field(60_000, ge=0)
    """How long a request with temporary failures is repeated, before `LogUnavailable`."""
    retry_delay_ms: int = Field(5, ge=1)
    """Pause before the first retry; doubled for each further one."""
    retry_delay_ms_max: int = Field(1_000, ge=1)
    """Longest pause between two retries."""
    unknown_topic_for_ms: int = Field(3_000, ge=0)
    """How long a topic may be unknown to the cluster before it counts as missing."""
    metadata_age_ms_max: int = Field(300_000, ge=1)
    """Age at which the metadata of topics and leaders is refreshed without a failure."""
    requests_in_flight_max: int = Field(64, ge=1)
    """Unanswered requests per connection; further ones wait."""
    batches_in_flight_max: int = Field(5, ge=1, le=5)
    """Unacknowledged batches per partition and writer; brokers remember at most five."""
    fetch_connections_max: int = Field(8, ge=1)
    """Connections per broker for long polls, each of which occupies its connection."""
    response_bytes_max: int = Field(256 << 20, ge=1 << 16)
    """Largest accepted answer; a larger one closes its connection before any allocation."""
    transaction_timeout_ms: int = Field(60_000, ge=1)
    """How long a transaction may stay open before the cluster aborts it."""
    abort_for_ms: int = Field(5_000, ge=0)
    """How long an abort is retried; after that it is left to the cluster's own timeout."""
    replication_factor: int = Field(-1, ge=-1)
    """Replicas of each partition of topics created here; -1 leaves it to the cluster."""


def security_at(endpoint: Endpoint) -> SecuritySettings:
    """Returns the security of a connection to the owner of a data directory."""
    return _security(endpoint.secret, endpoint.ca_file)


def security_by_secret(secret_file: Path, tls: TlsSettings | None) -> SecuritySettings:
    """The same from a broker's own settings, so that other brokers of its cluster are reached while
    it does not run."""
    newest = read_secret_file(secret_file)[0]
    return _security(derive(newest, "local"), None if tls is None else str(tls.trusted_file))


def _security(password: str | None, ca_file: str | None) -> SecuritySettings:
    encryption = "PLAINTEXT" if ca_file is None else "SSL"
    known = {"protocol": encryption, "ca_file": ca_file}
    if password is not None:
        known |= {"protocol": f"SASL_{encryption}", "user": LOCAL.name, "password": password}
    return SecuritySettings.model_validate(known)
