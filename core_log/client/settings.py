"""How to reach a Kafka-compatible cluster, and how patient and how greedy to be with it."""

from pydantic import Field

from headwater.core_log.foundation.settings import SecuritySettings, Settings

FIRST_ANSWER_MS = 2_000
"""What pipelines and commands give a cluster, so that an address that is wrong is said at once."""


class KafkaSettings(Settings):
    """A Kafka-compatible cluster: a Headwater broker, Apache Kafka 4.x or Redpanda."""

    bootstrap: list[str] = Field(min_length=1, examples=[["127.0.0.1:9092"]])
    """HOST:PORT of some brokers; the others are learnt from the first that answers."""
    security: SecuritySettings = SecuritySettings()
    """Whether connections are encrypted, and as whom the cluster knows us; the keys are below."""
    client_id: str = "headwater"
    """Name under which the cluster's own logs and quotas know this client."""
    connect_wait_ms_max: int = Field(5_000, ge=1)
    """How long a connection may take to be made and to agree on versions."""
    first_answer_ms_max: int = Field(60_000, ge=1)
    """How long a client that no broker has answered yet tries to reach one, before
    `LogUnavailable`. Pipelines and commands give a cluster 2,000."""
    request_wait_ms_max: int = Field(30_000, ge=1)
    """How long one request may go unanswered before its connection counts as lost."""
    retry_for_ms: int = Field(60_000, ge=0)
    """How long a request is repeated while its failures may pass, before `LogUnavailable`."""
    retry_delay_ms: int = Field(5, ge=1)
    """Pause before the first repetition; doubled for each further one."""
    retry_delay_ms_max: int = Field(1_000, ge=1)
    """Longest pause between two repetitions."""
    unknown_topic_for_ms: int = Field(3_000, ge=0)
    """How long a topic may be unknown to the cluster before it counts as missing."""
    metadata_age_ms_max: int = Field(300_000, ge=1)
    """Age at which knowledge of topics and leaders is renewed although nothing failed."""
    requests_in_flight_max: int = Field(64, ge=1)
    """Unanswered requests per connection; further ones wait."""
    batches_in_flight_max: int = Field(5, ge=1, le=5)
    """Unacknowledged batches per partition and writer; brokers remember no more than five."""
    fetch_connections_max: int = Field(8, ge=1)
    """Connections per broker for long polls, each of which occupies its connection."""
    response_bytes_max: int = Field(256 << 20, ge=1 << 16)
    """Largest answer accepted; a larger one closes its connection before any allocation."""
    transaction_timeout_ms: int = Field(60_000, ge=1)
    """How long a transaction may stay open before the cluster aborts it."""
    abort_for_ms: int = Field(5_000, ge=0)
    """How long an abort is tried; after that it is left to the cluster's own timeout."""
    replication_factor: int = Field(-1, ge=-1)
    """Copies of each partition of topics created here; -1 leaves it to the cluster."""
