"""YAML keys of a bucket, the same for whatever reads or writes one."""

from pydantic import Field, SecretStr

from headwater.core_log.foundation.settings import DurationMs, HttpAddress, SizeBytes, YamlSettings


class S3Settings(YamlSettings):
    """How a bucket is reached. Without keys, credentials are found as the AWS tools find them:
    environment, shared files, the machine's own role."""

    endpoint: HttpAddress = Field("", examples=["http://127.0.0.1:9000"])
    """Address of a store that is not Amazon's, such as MinIO, Ceph or R2."""
    region: str = Field("", examples=["eu-central-1"])
    """Region of the bucket; the AWS tools' own default where it is left out."""
    access_key: SecretStr | None = Field(None, examples=["${env:S3_ACCESS_KEY}"])
    """Access key, by reference."""
    secret_key: SecretStr | None = Field(None, examples=["${env:S3_SECRET_KEY}"])
    """The secret that belongs to `access_key`, by reference."""
    session_token: SecretStr | None = None
    """Token of temporary credentials, by reference."""
    path_style: bool = False
    """Whether the bucket stands in the path of the address instead of its host name, as many
    stores that are not Amazon's want it."""
    part_bytes: SizeBytes = Field(8 << 20, ge=5 << 20)
    """How much of a large object is sent in one request."""
    page_keys: int = Field(1_000, ge=1, le=1_000)
    """How many objects are listed in one request."""
    retries: int = Field(4, ge=0)
    """How often a request is repeated before the failure is told."""
    timeout_ms: DurationMs = Field(30_000, ge=1)
    """How long to wait for a connection, and for each answer."""
