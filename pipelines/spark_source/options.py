"""Options of the data source (`option(...)`), checked as a whole before anything is read."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from headwater.core_log.client.settings import security_at
from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint, decode_endpoint
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Isolation

if TYPE_CHECKING:
    from headwater.core_log.foundation.settings import SecuritySettings

ColumnForm = Literal["typed", "raw"]
FETCH_BYTES = 1 << 20
"""Bytes of one fetch: it is taken apart at once, and this much stays in a processor's cache."""

SECURITY = {
    "protocol": "`SSL`, `SASL_SSL` or `SASL_PLAINTEXT`, for TLS or authentication",
    "mechanism": "SASL mechanism: `SCRAM-SHA-512`, `SCRAM-SHA-256` or `PLAIN`",
    "user": "name of the user, for `SASL_`",
    "password": "password of the user",
    "caFile": "PEM file with the authorities that sign the brokers' certificates",
    "certificateFile": "PEM file with our own certificate, where brokers ask for one",
    "keyFile": "PEM file with its key, where that is not in the same file",
    "keyPassword": "password of that key",
    "checkHost": "`true`: a broker's certificate must name the host of the connection",
}
"""As `log.security` of a pipeline file has them."""
KNOWN = {
    "bootstrap": "HOST:PORT of brokers, separated by commas",
    "data": "data directory of a running broker on this machine, instead of `bootstrap`",
    "topic": "topic to read; several, separated by commas, for `columns` `raw`",
    "columns": "`typed`: before, after, op and so on; `raw`: key, value and headers",
    "start": "beginning: earliest, latest, offsets, a time, a position of the source",
    "end": "end of a batch: stable, latest, offsets, a time, a position of the source",
    "asOf": "end of a batch at a point in time of the source: offsets, a time, a position",
    "isolation": "`committed`, or `uncommitted` for `raw` alone",
    "splitRecords": "most offsets that one task reads",
    "fetchBytes": "most bytes of one fetch from a broker",
    **SECURITY,
}
"""Every option by its name, as the page has it."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """As they are needed; what they mean in offsets is asked of the log."""

    bootstrap: tuple[str, ...]
    security: "SecuritySettings"
    topics: tuple[str, ...]
    columns: ColumnForm
    start: str
    end: str
    as_of: str | None
    isolation: Isolation
    split_records: int
    fetch_bytes: int

    @property
    def topic(self) -> str:
        """The topic of typed columns, which are those of one table."""
        return self.topics[0]


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Spark hands names over in lower case. Raises ConfigError for everything that is not known."""
    names = {name.lower(): name for name in KNOWN}
    chosen: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in names:
            close = difflib.get_close_matches(name.lower(), names, 1)
            hint = f"did you mean {names[close[0]]}?" if close else "known: " + ", ".join(KNOWN)
            raise ConfigError("the option does not exist", option=name, hint=hint)
        chosen[names[name.lower()]] = value.strip()
    columns = chosen.get("columns", "typed")
    if columns not in get_args(ColumnForm):
        raise ConfigError("the option columns is not typed or raw", columns=columns)
    topics = tuple(part.strip() for part in chosen.get("topic", "").split(",") if part.strip())
    if not topics or (columns == "typed" and len(topics) > 1):
        raise ConfigError(
            "typed columns are those of one topic" if topics else "the option topic is missing",
            hint='option("topic", "shop.public.orders")',
        )
    isolation = chosen.get("isolation", "committed").upper()
    if isolation not in Isolation.__members__ or (isolation != "COMMITTED" and columns == "typed"):
        raise ConfigError(
            "the isolation is neither committed nor, with raw columns, uncommitted",
            isolation=isolation,
        )
    if "end" in chosen and "asOf" in chosen:
        raise ConfigError(
            "the options end and asOf cannot be used together", hint="leave one of them out"
        )
    endpoint = _endpoint(chosen)
    return ReadOptions(
        bootstrap=_bootstrap(chosen, endpoint),
        security=_security(chosen) if endpoint is None else security_at(endpoint),
        topics=topics,
        columns=cast(ColumnForm, columns),
        start=chosen.get("start", "earliest"),
        end=chosen.get("end", "stable"),
        as_of=chosen.get("asOf"),
        isolation=Isolation[isolation],
        split_records=_count(chosen, "splitRecords", 500_000),
        fetch_bytes=_count(chosen, "fetchBytes", FETCH_BYTES),
    )


def endless(options: ReadOptions) -> ReadOptions:
    """As a stream takes them. Raises ConfigError for an end, which would have no effect."""
    if options.as_of is not None or options.end not in ("stable", "latest"):
        raise ConfigError(
            "a stream cannot have an end",
            hint="leave out end and asOf, or read a batch: spark.read instead of spark.readStream",
        )
    return options


def _endpoint(chosen: Mapping[str, str]) -> Endpoint | None:
    """Returns the owner of the data directory that is named; None if brokers are."""
    if chosen.get("bootstrap"):
        return None
    if "data" not in chosen:
        raise ConfigError(
            "the address of the log is missing",
            hint='option("bootstrap", "HOST:PORT"), or option("data", DIRECTORY) on its machine',
        )
    path = Path(chosen["data"]) / FILE_NAME
    try:
        return decode_endpoint(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            "the data directory has no running broker",
            data=chosen["data"],
            hint="headwater broker --data DIRECTORY, or headwater run with a pipeline file",
        ) from None


def _bootstrap(chosen: Mapping[str, str], endpoint: Endpoint | None) -> tuple[str, ...]:
    if endpoint is not None:
        return (endpoint.kafka,)
    return tuple(part.strip() for part in chosen["bootstrap"].split(",") if part.strip())


def _security(chosen: Mapping[str, str]) -> "SecuritySettings":
    from pydantic import ValidationError

    from headwater.core_log.foundation.settings import SecuritySettings

    given = {
        re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): chosen[name]
        for name in SECURITY
        if name in chosen
    }
    try:
        return SecuritySettings.model_validate(given).beside(Path.cwd())
    except ValidationError as error:
        [first, *_] = error.errors(include_input=False, include_url=False)
        raise ConfigError(
            "the options for brokers are not valid",
            option=".".join(map(str, first["loc"])) or "protocol",
            why=first["msg"],
        ) from None


def _count(chosen: Mapping[str, str], name: str, default: int) -> int:
    text = chosen.get(name, str(default))
    if not text.isdigit() or not int(text):
        raise ConfigError("the option is not a number above zero", option=name, given=text)
    return int(text)
