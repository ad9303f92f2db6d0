"""The key `pipeline.schema_changes`: what is done when a table's form has changed at its source."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from headwater.core_log.foundation.settings import DurationMs, YamlSettings

SchemaPolicy = Literal["evolve", "lenient", "ignore", "fail"]
POLICIES: tuple[str, ...] = get_args(SchemaPolicy)

# In YAML's spelling, which is how the manual shows defaults.
EVOLVE: Any = "evolve"


class SchemaChangeSettings(YamlSettings):
    """What is done when a table's form has changed, by the kind of change."""

    others: SchemaPolicy = Field(EVOLVE, alias="*")
    """For the kinds that are not named."""
    add_column: SchemaPolicy | None = None
    """A column has come."""
    drop_column: SchemaPolicy | None = None
    """A column has gone. A renamed one is one that went and one that came."""
    widen_type: SchemaPolicy | None = None
    """A column's type has become one that every older value fits into."""
    change_type: SchemaPolicy | None = None
    """A column's type, or what its values mean, has become another; `lenient` stops the table."""
    drop_not_null: SchemaPolicy | None = None
    """A column may be null."""
    change_key: SchemaPolicy | None = None
    """Rows are told apart by other columns, so that the table goes on in a new topic."""
    change_rows: SchemaPolicy | None = None
    """Rows came, went or were rewritten without a change in the stream, as with partitions that are
    attached, detached or truncated."""
    settle_ms: DurationMs = 30_000
    """How long a table is left alone after its last change of form, before it is read again."""

    @property
    def policies(self) -> Mapping[str, str]:
        """Of each kind of change."""
        kinds = [name for name in type(self).model_fields if name not in ("others", "settle_ms")]
        return {kind: getattr(self, kind) or self.others for kind in kinds}


def parse_schema_changes(value: Any) -> Any:
    """One policy stands for all kinds."""
    if not isinstance(value, str):
        return value
    if value not in POLICIES:
        raise ValueError(f"a policy is {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")
    return {"*": value}


class _OrOnePolicy:
    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"enum": [*POLICIES]}, handler(schema)]}


SchemaChanges = Annotated[
    SchemaChangeSettings, BeforeValidator(parse_schema_changes), _OrOnePolicy()
]
