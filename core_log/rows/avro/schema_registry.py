"""Avro schemas as Confluent's converter derives them from Kafka Connect's, and a client of the
registry that numbers them, with Confluent's HTTP API."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import RegistryRejected, RegistryUnavailable, RowsRejected
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets
from headwater.core_log.rows.avro.reader import AvroReader, AvroSchema
from headwater.core_log.rows.connect_schema import DECIMAL
from headwater.core_log.rows.converters.row import refuse
from headwater.core_log.rows.rejects import whole_or_rejected

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 << 20
SERVER_ERROR, TOO_MANY_REQUESTS, REQUEST_TIMEOUT = 500, 429, 408
MAGIC = b"\x00"
NUMBER_BYTES = 4
FRAME_BYTES = len(MAGIC) + NUMBER_BYTES

KnownRecords = dict[str, Any]
"""The fields of each record by its full name."""

PRIMITIVES = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
NARROW = {"int8", "int16"}
"""Integer types that Avro lacks: a property names them."""
LOGICAL_TYPES = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
DEFAULT_NAMESPACE, DEFAULT_NAME = "io.confluent.connect.avro", "ConnectDefault"
DEFAULT_PRECISION = 64


@dataclass(slots=True)
class SchemaRegistry:
    """A registry's client with a cache: a schema or an id is requested once, because it never
    changes."""

    address: str
    """URL; a user and a password in it are sent as basic authentication, and never shown."""
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _schemas: dict[int, Any] = field(default_factory=dict)

    def number_of(self, subject: str, schema: Any) -> int:
        """Returns the schema's id and registers it if needed; raises `RegistryRejected` if it is
        not compatible."""
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        if (subject, text) not in self._numbers:
            path = f"/subjects/{quote(subject, safe='')}/versions"
            answer = self._ask(path, {"schema": text}, subject=subject)
            self._numbers[subject, text] = int(answer["id"])
        return self._numbers[subject, text]

    def schema_of(self, number: int) -> Any:
        if number not in self._schemas:
            answer = self._ask(f"/schemas/ids/{number}", None, schema=number)
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise RegistryRejected("the schema is not an Avro schema", schema=number)
            self._schemas[number] = json.loads(answer["schema"])
        return self._schemas[number]

    def _ask(self, path: str, body: dict[str, Any] | None, **facts: str | int) -> dict[str, Any]:
        request = self._request(path, body)
        try:
            with urlopen(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            error.close()
            raise self._refusal(error.code, facts) from None
        except (OSError, HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            raise RegistryUnavailable(
                "the schema registry does not answer",
                registry=self.host,
                reason=(getattr(cause, "strerror", None) or type(cause).__name__).lower(),
                hint="start it, or correct `log.registry`",
            ) from error
        if not isinstance(answer, dict) or not {"id", "schema"} & answer.keys():
            raise RegistryUnavailable("the server is not a schema registry", registry=self.host)
        return answer

    def _refusal(
        self, status: int, facts: Mapping[str, str | int]
    ) -> RegistryRejected | RegistryUnavailable:
        if status >= SERVER_ERROR or status in (TOO_MANY_REQUESTS, REQUEST_TIMEOUT):
            problem = "the schema registry cannot answer now"
            return RegistryUnavailable(problem, registry=self.host, status=status)
        hints = {
            401: "check the user and the password in `log.registry`",
            404: "check `log.registry`; the registry may have lost its schemas",
            409: "set the subject's compatibility to NONE, or route the table to a new topic",
        }
        return RegistryRejected(
            "the schema registry refuses the request",
            registry=self.host,
            status=status,
            hint=hints.get(status, ""),
            **dict[str, Any](facts),
        )

    def _request(self, path: str, body: dict[str, Any] | None) -> Request:
        parts = urlsplit(self.address)
        port = f":{parts.port}" if parts.port else ""
        url = f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}{path}"
        headers = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return Request(url, None if body is None else json.dumps(body).encode(), headers)

    @property
    def host(self) -> str:
        """Returns host and port, without the user."""
        return urlsplit(self.address).netloc.rpartition("@")[2]


def frame(number: int) -> bytes:
    return MAGIC + number.to_bytes(NUMBER_BYTES, "big")


def read_framed(
    values: pa.BinaryArray, reader_of: Callable[[int], AvroReader]
) -> Iterator[tuple[Int64Array, pa.StructArray]]:
    """Returns for each schema the rows written under it, and their values; raises
    `RowsRejected`."""
    data, offsets = bytes_and_offsets(values)
    lengths = np.diff(offsets)
    is_framed = lengths > FRAME_BYTES
    if len(data):
        is_framed &= data[np.minimum(offsets[:-1], len(data) - 1)] == 0
    refuse({"the value does not begin with the number of a schema": pa.array(~is_framed)})
    if not len(values):
        return
    heads = data[offsets[:-1, None] + np.arange(len(MAGIC), FRAME_BYTES)]
    numbers = heads.copy().view(">u4").reshape(-1)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        starts, ends = offsets[:-1][rows] + FRAME_BYTES, offsets[1:][rows]
        yield rows, _read(data, starts, ends, rows, reader_of(number), number)


def _read(
    data: UInt8Array,
    starts: Int64Array,
    ends: Int64Array,
    rows: Int64Array,
    reader: AvroReader,
    number: int,
) -> pa.StructArray:
    try:
        return whole_or_rejected(
            len(rows),
            lambda first, last: reader.read(data, starts[first:last], ends[first:last]),
            lambda _: f"the value is not one of schema {number}",
            "records are not values of their schema",
        )
    except RowsRejected as error:
        reasons = {int(rows[index]): why for index, why in error.reasons.items()}
        raise RowsRejected(error.problem, reasons=reasons) from None


def avro_schema(connect: Mapping[str, Any]) -> AvroSchema:
    return _schema(connect, {})


def _schema(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    """Returns the schema. `known` are the records that are already defined; they are only named
    again."""
    schema = _require(connect, known)
    if not connect["optional"]:
        return schema
    return [schema, "null"] if "default" in connect else ["null", schema]


def _require(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    if connect["type"] == "struct":
        return _record(connect, known)
    if connect["type"] == "array":
        schema = {"type": "array", "items": _schema(connect["items"], known)}
    elif connect["type"] == "map":
        schema = {"type": "map", "values": _schema(connect["values"], known)}
    else:
        schema = {"type": PRIMITIVES[connect["type"]]}
    schema |= _decimal(connect) | _properties(connect)
    if connect["type"] in NARROW:
        schema["connect.type"] = connect["type"]
    if connect.get("name") in LOGICAL_TYPES:
        schema["logicalType"] = LOGICAL_TYPES[connect["name"]]
    return schema if len(schema) > 1 else schema["type"]


def _decimal(connect: Mapping[str, Any]) -> dict[str, Any]:
    if connect.get("name") != DECIMAL:
        return {}
    scale = int(connect["parameters"]["scale"])
    precision = int(connect["parameters"].get("connect.decimal.precision", DEFAULT_PRECISION))
    return {"scale": scale, "precision": precision, "logicalType": "decimal"}


def _properties(connect: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        f"connect.{name}": connect[name]
        for name in ("version", "parameters", "default", "name")
        if name in connect
    }
    if "name" in connect:
        found["connect.name"] = legal_full_name(connect["name"])
    return found


def _record(connect: Mapping[str, Any], known: KnownRecords) -> AvroSchema:
    plain = legal_full_name(connect.get("name", f"{DEFAULT_NAMESPACE}.{DEFAULT_NAME}"))
    full, number = plain, 2
    while full in known and known[full] != connect["fields"]:
        full, number = f"{plain}{number}", number + 1  # another record of the same name
    if full in known:
        return full
    known[full] = connect["fields"]
    namespace, _, name = full.rpartition(".")
    names = legal_names([each["field"] for each in connect["fields"]])
    fields = [
        _field(each, known, name=legal)
        for each, legal in zip(connect["fields"], names, strict=True)
    ]
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace:
        record["namespace"] = namespace
    return record | {"fields": fields} | _properties(connect)


def _field(connect: Mapping[str, Any], known: KnownRecords, *, name: str) -> dict[str, Any]:
    field = {"name": name, "type": _schema(connect, known)}
    if "default" in connect or connect["optional"]:
        field["default"] = connect.get("default")
    return field


def legal_full_name(name: str) -> str:
    return ".".join(legal_name(part) for part in name.split("."))


def legal_name(name: str) -> str:
    """Returns the name with Avro's illegal characters replaced, as Debezium's adjustment mode
    `avro` does it."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if re.match(r"[A-Za-z_]", replaced) else f"_{replaced}"


def legal_names(names: Sequence[str]) -> list[str]:
    """Returns legal names; names that would become equal get a number."""
    found: list[str] = []
    for name in names:
        legal, number = legal_name(name), 2
        while legal in found:
            legal, number = f"{legal_name(name)}_{number}", number + 1
        found.append(legal)
    return found
