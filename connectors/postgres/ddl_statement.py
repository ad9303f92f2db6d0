"""One ALTER TABLE as a user would run it: its table, and the parts that can be tried."""

import re
from dataclasses import dataclass

from headwater.connectors.schema_changes import (
    ANOTHER_NAME,
    NO_CONSTRAINTS,
    has_foreign_key,
    not_one_alter_table,
    several_actions,
)

NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
ALTER = re.compile(
    rf"\s*ALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?"
    rf"(?P<table>{NAME}(?:\s*\.\s*{NAME})?)\s*\*?\s+(?P<action>.+?)[\s;]*",
    re.IGNORECASE | re.DOTALL,
)
PARTITION = re.compile(
    rf"(?P<verb>ATTACH|DETACH)\s+PARTITION\s+(?P<table>{NAME}(?:\s*\.\s*{NAME})?)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
QUOTED = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|\"(?:[^\"]|\"\")*\"", re.DOTALL)
"""Quoted text and names, which contain no keywords."""

NOTHING_FOR_US = "nothing for us"
KNOWN = {
    r"RENAME\s+TO|SET\s+SCHEMA": (
        "new topic",
        ANOTHER_NAME,
    ),
    r"SET\s+UNLOGGED": ("read again", "it is left out, and read again once it is logged again"),
    r"SET\s+LOGGED": ("followed", "a captured table is logged already"),
    r"(ADD\s+(CONSTRAINT\s+\S+\s+)?)?FOREIGN\s+KEY": (
        "followed",
        NO_CONSTRAINTS,
    ),
    r"ADD\s+(CONSTRAINT\s+\S+\s+)?UNIQUE\s+USING\s+INDEX": (
        "followed",
        NO_CONSTRAINTS,
    ),
    r"ADD\s+(CONSTRAINT\s+\S+\s+)?PRIMARY\s+KEY\s+USING\s+INDEX": (
        "new key",
        "records have a key from then on, unless `keys` names the same columns",
    ),
    r"ALTER\s+CONSTRAINT": ("followed", NOTHING_FOR_US),
    r"REPLICA\s+IDENTITY\s+USING": (
        "left out",
        "a delete does not say the primary key, unless the index is of its columns",
    ),
    r"OWNER\s+TO": ("followed", "our role needs SELECT"),
    r"(ENABLE|DISABLE|FORCE|NO\s+FORCE)\s": (
        "followed",
        "writes of triggers and rules are in the stream like all others",
    ),
    r"(NO\s+)?INHERIT\s": ("followed", "rows of children are their own tables'"),
    r"(NOT\s+)?OF\b|CLUSTER\s|SET\s+WITHOUT|SET\s+TABLESPACE|SET\s+ACCESS": (
        "followed",
        NOTHING_FOR_US,
    ),
}
"""Actions that cannot be tried on a copy, or that would lock other tables, and their effects."""


@dataclass(frozen=True, slots=True)
class AlterTable:
    """A statement about one table."""

    text: str
    table: str
    """As written, including quotes."""
    action: str
    known: tuple[str, str] | None
    """The known effect and its reason, if it need not be tried."""
    verb: str = ""
    """ATTACH or DETACH of a partition."""
    partition: str = ""
    rest: str = ""
    """The text after the partition's name."""


def parse_ddl(text: str) -> AlterTable:
    """Parses a statement; raises ConfigError for anything but an ALTER TABLE."""
    found = ALTER.fullmatch(text)
    bare = QUOTED.sub("''", text)
    if found is None or ";" in bare.strip().rstrip(";") or "--" in bare or "/*" in bare:
        raise not_one_alter_table(text, page="docs/schema-changes.md")
    action = found["action"]
    own = QUOTED.sub("x", action)
    statement = AlterTable(text.strip(), found["table"], action, _known(text, own))
    if (moved := PARTITION.fullmatch(action)) is not None:
        return AlterTable(
            text.strip(), found["table"], action, None, moved["verb"].upper(), moved["table"],
            re.sub(r"\b(CONCURRENTLY|FINALIZE)\b", "", moved["rest"], flags=re.IGNORECASE),
        )  # fmt: skip
    return statement


def _known(text: str, action: str) -> tuple[str, str] | None:
    """Returns the known effect of a statement with a single action."""
    for pattern, said in KNOWN.items():
        if not re.match(pattern, action, re.IGNORECASE):
            continue
        if "," in re.sub(r"\([^()]*\)", "", action):
            raise several_actions(text)
        return said
    if re.search(r"\bREFERENCES\b", action, re.IGNORECASE):
        raise has_foreign_key(text)
    return None
