"""YAML keys of `type: console`."""

from typing import Literal

from pydantic import Field

from headwater.core_log.foundation.settings import Texts, YamlSettings


class ConsoleSettings(YamlSettings):
    """At least once: what was printed cannot be taken back, and a restart may print it again."""

    tables: Texts = ("*",)
    """Tables to print, by globs or /regular expressions/; `!` in front leaves tables out."""
    format: Literal["line", "json"] = "line"
    """`line`: operation, table and columns, for people. `json`: one object per line."""
    limit: int | None = Field(None, ge=0)
    """Stop printing after this many changes; the pipeline itself goes on."""
