"""YAML keys of `type: console`."""

from typing import Literal

from pydantic import Field

from headwater.core_log.foundation.settings import Texts, YamlSettings


class ConsoleSettings(YamlSettings):
    """At least once: printed lines cannot be taken back, and a restart may print them again."""

    tables: Texts = ("*",)
    """Tables to print, by globs or /regular expressions/; a pattern with `!` in front excludes
    tables."""
    format: Literal["line", "json"] = "line"
    """`line`: operation, table and columns, for people. `json`: one object per line."""
    limit: int | None = Field(None, ge=0)
    """Number of changes after which printing stops; the pipeline itself continues."""
