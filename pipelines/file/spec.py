"""The keys of a pipeline file, except those of a source's or a sink's own type."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import CoreSchema

from headwater.core_log.foundation.schedule import Schedule
from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternText,
    PatternTexts,
    SizeBytes,
    Texts,
    YamlSettings,
)
from headwater.core_log.foundation.units import parse_duration_ms
from headwater.pipelines.file.http_settings import HttpSettings, OpenLineageSettings, OtelSettings
from headwater.pipelines.file.log_settings import LogSettings

SchemaPolicy = Literal["evolve", "lenient", "ignore", "fail"]
POLICIES: tuple[str, ...] = get_args(SchemaPolicy)

# In YAML's spelling, which is how the manual shows defaults.
EVOLVE: Any = "evolve"


class SchemaChangeSettings(YamlSettings):
    """The policy for schema changes, by the kind of change."""

    others: SchemaPolicy = Field(EVOLVE, alias="*")
    """For kinds that are not named."""
    add_column: SchemaPolicy | None = None
    """A column was added."""
    drop_column: SchemaPolicy | None = None
    """A column was removed. A renamed column is one removed and one added."""
    widen_type: SchemaPolicy | None = None
    """A column's type became a wider one, which holds every older value."""
    change_type: SchemaPolicy | None = None
    """A column's type, or the meaning of its values, became another; `lenient` stops the table."""
    drop_not_null: SchemaPolicy | None = None
    """A column may be null now."""
    change_key: SchemaPolicy | None = None
    """The row key has other columns, so the table continues in a new topic."""
    change_rows: SchemaPolicy | None = None
    """Rows came, went or were rewritten without a change in the stream, for example by partitions
    that were attached, detached or truncated."""
    settle_ms: DurationMs = 30_000
    """Time after a table's last schema change before it is read again."""

    @property
    def policies(self) -> Mapping[str, str]:
        """Returns the policy of each kind of change."""
        kinds = [name for name in type(self).model_fields if name not in ("others", "settle_ms")]
        return {kind: getattr(self, kind) or self.others for kind in kinds}


def parse_schema_changes(value: Any) -> Any:
    """Accepts one policy for all kinds."""
    if not isinstance(value, str):
        return value
    if value not in POLICIES:
        raise ValueError(f"the policy is not {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")
    return {"*": value}


class _OrOnePolicy:
    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"enum": [*POLICIES]}, handler(schema)]}


SchemaChanges = Annotated[
    SchemaChangeSettings, BeforeValidator(parse_schema_changes), _OrOnePolicy()
]


NAME = r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}$"
MASK = r"redact|hash|null|truncate\([1-9][0-9]{0,3}\)"
FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"

# Defaults in YAML's spelling, which is how the manual shows them.
GENTLE: Any = "1s..1m"


class BackoffSettings(NamedTuple):
    """Pauses between retries: from the first, doubled each time, up to the longest."""

    first_ms: int
    longest_ms: int


def parse_backoff(value: Any) -> Any:
    """Parses `1s..1m`: the first pause and the longest."""
    if not isinstance(value, str):
        return value
    first, separator, longest = value.partition("..")
    backoff = BackoffSettings(
        parse_duration_ms(first), parse_duration_ms(longest if separator else first)
    )
    if backoff.first_ms > backoff.longest_ms:
        raise ValueError("the first pause is longer than the longest")
    return backoff


def parse_mask(value: Any) -> Any:
    """Accepts YAML's bare `null`, which is not text, as the mask `null`."""
    mask = "null" if value is None else value
    if not isinstance(mask, str) or not re.fullmatch(MASK, mask):
        raise ValueError(
            "the mask is not redact, hash, null or truncate(4), which keeps 4 characters"
        )
    return mask


Mask = Annotated[
    str,
    BeforeValidator(parse_mask),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^({MASK})$"}, {"type": "null"}]}),
]


class PipelineHead(YamlSettings):
    """The pipeline's identity; `pipeline: shop` is short for `pipeline: {name: shop}`."""

    name: str = Field(pattern=NAME, examples=["shop"])
    """Name of the pipeline in its topics, its positions and every command; another name is a new
    pipeline."""
    schema_changes: SchemaChanges = Field(
        EVOLVE, examples=[{"*": "evolve", "change_key": "fail", "settle": "5m"}]
    )
    """Reaction to another form of a table at its source: `evolve` follows, `lenient`
    follows only what loses nothing, `ignore` leaves the columns of targets as they are, `fail`
    quarantines the table before any row of the new form is read. Where a type stays by `ignore`,
    records with values that it would change are dead letters. One policy, or one per kind of
    change, and `*` for those that are not named."""
    salt: SecretStr = SecretStr("")
    """Secret of at least 16 characters that is mixed into every `mask: hash`. Without a salt, a
    guessed value can be checked against its hash; with another salt, the same value gets another
    hash."""


class TransformRule(YamlSettings):
    """Changes to the rows of some tables. `mask` and `drop` apply before the log and affect the
    topics; the others apply after it, and a change of them is a replay."""

    table: PatternTexts = Field(min_length=1, examples=["public.orders"])
    """Tables of the rule, by their names at the source: globs, `/regex/`, `!` excludes. Every
    matching rule applies, in the order of the file."""
    mask: dict[str, Mask] = Field({}, examples=[{"email": "hash", "phone": "redact"}])
    """Column to its mask: `redact`, `hash`, `truncate(4)` (keeps 4 characters) or `null`."""
    drop: Texts = ()
    """Columns that never enter the log."""
    filter: str = Field("", examples=["status <> 'draft'"])
    """SQL condition over the row's columns; rows for which it is not true are left out, and a row
    that no longer fulfils it is deleted."""
    add: dict[str, str] = Field({}, examples=[{"order_day": "date(created_at)"}])
    """New column to the SQL expression that computes it."""
    time_ms_max: DurationMs = Field(30_000, ge=1)
    """Longest time of `filter` and `add` for one batch of rows; a slower table is quarantined."""
    rename: dict[str, str] = Field({}, examples=[{"fullname": "name"}])
    """Column to its new name."""
    cast: dict[str, str] = Field({}, examples=[{"total": "decimal(10,2)"}])
    """Column to its new type."""
    python: str = Field("", pattern=rf"{FUNCTION}|^$", examples=["shop.transforms:clean_orders"])
    """`module:function` of your own project that takes and returns an Arrow table."""


class RouteRule(YamlSettings):
    """Another name for tables at the target; several tables may become one."""

    source: PatternText = Field(alias="from", examples=["/tenant_(\\d+)\\.(.*)/"])
    """Tables of the route: a glob or a `/regex/`. The first matching route counts."""
    to: str = Field(min_length=1, examples=["crm.$2"])
    """Name at the target; `$1` is the first group of the expression, or the first `*` of the
    glob."""
    add_key: dict[str, str] = Field({}, examples=[{"tenant_id": "$1"}])
    """Columns added to the row and its key, so that rows of several tables stay apart."""


class RetrySettings(YamlSettings):
    """Retries of failures that time may cure."""

    for_ms: DurationMs = 600_000
    """How long a failing table or sink is retried before it is quarantined; connections are retried
    for ever."""
    backoff: Annotated[
        BackoffSettings,
        BeforeValidator(parse_backoff),
        WithJsonSchema({"type": "string", "examples": ["1s..1m"]}),
    ] = Field(GENTLE)
    """The first pause and the longest; each is twice the one before."""


class StopAfter(YamlSettings):
    """The number of dead letters from which on the data, not single records, must be wrong."""

    failures: int = Field(20, ge=1)
    """This many dead letters ..."""
    of_last: int = Field(1_000, ge=1)
    """... of this many records: the table is quarantined."""


class DeadLetterSettings(YamlSettings):
    """The topic `<pipeline>.dlq` takes records that can never be applied, with the reason."""

    stop_after: StopAfter = StopAfter()
    """Limit of dead letters above which the table is quarantined."""


class ErrorSettings(YamlSettings):
    """Which failures are retried, become dead letters, or stop a table."""

    retry: RetrySettings = RetrySettings()
    """How long, and how often, a failure is retried."""
    dead_letter: DeadLetterSettings = DeadLetterSettings()
    """Records that can never be applied."""
    isolate: Literal["table", "pipeline"] = "table"
    """Extent of a quarantine when a table fails: only the table, or everything."""


class NotifySettings(YamlSettings):
    """A webhook that is told what needs a person: quarantined tasks and tables, lost positions,
    tables that are left out, and dead letters."""

    url: SecretStr = Field(SecretStr(""), examples=["${env:WEBHOOK_URL}"])
    """Address that gets a POST with JSON for each: `kind`, `pipeline`, `task`, `table`, `reason`,
    `records`, `at_ms`, and `text` with all of it in one sentence."""
    token: SecretStr = Field(SecretStr(""), examples=["${env:WEBHOOK_TOKEN}"])
    """Token that is sent as `Authorization: Bearer`, by reference."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value() and not url.get_secret_value().startswith(
            ("http://", "https://")
        ):
            raise ValueError("the webhook is not an address that begins with http:// or https://")
        return url


class VerifySettings(Schedule):
    """Regular comparison of source, log and target at one position."""


class GivenChange(YamlSettings):
    """One change that a test starts from."""

    table: str = Field(examples=["public.orders"])
    """The table, by its name at the source."""
    op: Literal["c", "r", "u", "d", "t"] = "c"
    """Debezium's op code: created, read, updated, deleted, truncated."""
    after: dict[str, Any] | None = None
    """The row after the change."""
    before: dict[str, Any] | None = None
    """The row before it; for a delete at least the key."""
    key: Texts = ()
    """Columns of the key; the default is `id` if the row has it, else its first column."""
    types: dict[str, str] = Field({}, examples=[{"created_at": "timestamp(us)"}])
    """Types of columns whose values do not show them."""


class PipelineTest(YamlSettings):
    """Changes through the transforms and routes, without any system: `headwater test`."""

    name: str
    """The sentence that the test proves."""
    given: tuple[GivenChange, ...] = Field(min_length=1)
    """Changes at the source, in order."""
    expect: dict[str, tuple[dict[str, Any], ...]]
    """Per target table its rows afterwards, in key order; of each row only the columns named here
    are compared."""


class LimitSettings(YamlSettings):
    """Bounds of memory and waiting; the defaults suit almost everyone."""

    transaction_size_bytes: SizeBytes = 8 << 20
    """Bytes after which a transaction of the log commits without waiting."""
    transaction_timeout_ms: DurationMs = 900_000
    """Longest duration of a log transaction; a source transaction that takes longer to read is
    aborted."""
    slice_rows: int = Field(200_000, ge=1)
    """Rows after which a sink's slice ends at the next commit boundary."""
    slice_size_bytes: SizeBytes = 64 << 20
    """Bytes in the log after which a sink's slice ends at the next commit boundary."""
    fetch_size_bytes: SizeBytes = 1 << 20
    """Bytes of the log that a sink reads at a time; decoded they are about ten times as large."""


class ConsoleViewSettings(YamlSettings):
    """The view of a pipeline in `headwater ui`, if it is started with this file."""

    hide: Texts = Field((), examples=[["public.users.email"]])
    """Columns that the console does not show and does not search, as `schema.table.column`. Without
    the schema the column is hidden in every table of that name."""

    @field_validator("hide")
    @classmethod
    def _are_columns(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            table, _, column = name.rpartition(".")
            if not table or not column:
                raise ValueError(f"the name is not schema.table.column: {name}")
            if "*" in name:
                raise ValueError(f"each column is named by itself, without a pattern: {name}")
        return names


class SourceTask(YamlSettings):
    """Keys of every source beside those of its type."""

    type: str
    """Type of the source; `headwater explain` lists them."""
    batch_wait_ms: DurationMs = 5
    """Least time between two commits to the log, on average; after quiet the first few are
    immediate."""


class SinkTask(YamlSettings):
    """Keys of every sink beside those of its type."""

    type: str
    """Type of the sink; `headwater explain` lists them."""
    name: str = Field("", pattern=rf"{NAME}|^$")
    """Name of the sink in `status` and in the log. Default: its type."""
    commit_every_ms: DurationMs = 1_000
    """How long changes are collected before they are applied together; 0s applies each at once."""


class PipelineSpec(YamlSettings):
    """A pipeline file without its source and its sinks, whose keys depend on their types."""

    pipeline: Annotated[
        PipelineHead,
        BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
    ]
    """The pipeline's name, or its name and its policy for schema changes."""
    log: LogSettings = LogSettings()
    """Place of the log, and the form of its topics."""
    transform: tuple[TransformRule, ...] = ()
    """Changes to rows on their way."""
    route: tuple[RouteRule, ...] = ()
    """Names of tables at the target."""
    errors: ErrorSettings = ErrorSettings()
    """Which failures are retried, become dead letters, or stop a table."""
    verify: VerifySettings | None = None
    """Whether source, log and target are compared regularly."""
    tests: tuple[PipelineTest, ...] = ()
    """Examples that `headwater test` runs without any system."""
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=256)] = "auto"
    """Processes for connector and sink work: `auto` is one less than the number of cores; 0 does
    everything in one process."""
    notify: NotifySettings = NotifySettings()
    """A webhook for what needs a person."""
    http: HttpSettings = HttpSettings()
    """A fixed address of status and metrics; it counts when `headwater run` starts."""
    otel: OtelSettings = OtelSettings()
    """A collector that gets traces and metrics by OTLP."""
    openlineage: OpenLineageSettings = OpenLineageSettings()
    """A server that gets the lineage of the sinks' tables."""
    limits: LimitSettings = LimitSettings()
    """Bounds of memory and waiting."""
    console: ConsoleViewSettings = ConsoleViewSettings()
    """The view of the pipeline in `headwater ui`."""

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def schema_changes(self) -> SchemaChangeSettings:
        return self.pipeline.schema_changes
