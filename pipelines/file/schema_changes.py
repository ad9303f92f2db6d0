"""The key `pipeline.schema_changes`: the policy for schema changes of the source."""

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
