"""The keys of a pipeline file under `http`, which are also the options of commands that serve."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from headwater.core_log.foundation.endpoint import is_loopback, parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import Texts, YamlSettings

ADDRESS = r"^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$"
NAME = r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?$"


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
