"""One ALTER TABLE as a user would run it: its table, and the actions that a copy can be given."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.connectors.mysql.schema_history.mysql_statement import TOKEN, Name
from headwater.connectors.schema_changes import (
    has_foreign_key,
    not_one_alter_table,
    several_actions,
)

PAGE = "docs/mysql.md"
BEFORE_TABLE = {"ONLINE", "OFFLINE", "IGNORE"}
NAMES = ("word", "ticked", "double")


class ActionKind(Enum):
    TRIED = "tried"
    """It may change columns or keys."""
    UNTRIED = "untried"
    """It changes neither, and a temporary table may not have it."""
    RENAME = "rename"
    VERSIONED = "versioned"
    UNLOGGED = "unlogged"
    """No server logs the statement."""
    LOGGED_BY_MYSQL = "logged by MySQL"
    """MariaDB does not log it."""


KINDS = {
    r"(ANALYZE|OPTIMIZE|REPAIR) PARTITION (NO_WRITE_TO_BINLOG|LOCAL)\b": ActionKind.UNLOGGED,
    r"CHECK PARTITION\b": ActionKind.UNLOGGED,
    r"(REBUILD|REORGANIZE|COALESCE) PARTITION (NO_WRITE_TO_BINLOG|LOCAL)\b":
        ActionKind.LOGGED_BY_MYSQL,
    r"(ADD|DROP|TRUNCATE|COALESCE|REORGANIZE|EXCHANGE|ANALYZE|OPTIMIZE|REBUILD|REPAIR"
    r"|CONVERT|DISCARD|IMPORT) PARTITION\b": ActionKind.UNTRIED,
    r"(DISCARD|IMPORT) TABLESPACE\b|CONVERT TABLE\b": ActionKind.UNTRIED,
    r"PARTITION BY\b|REMOVE PARTITIONING\b": ActionKind.UNTRIED,
    r"ALGORITHM\b|LOCK\b": ActionKind.UNTRIED,
    r"ADD (CONSTRAINT (NAME )?)?FOREIGN KEY\b|DROP FOREIGN KEY\b": ActionKind.UNTRIED,
    r"ADD (FULLTEXT|VECTOR) (INDEX|KEY|NAME|\()": ActionKind.UNTRIED,
    r"(ROW_FORMAT|KEY_BLOCK_SIZE|ENCRYPTION|ENCRYPTED|ENCRYPTION_KEY_ID|COMPRESSION"
    r"|PAGE_COMPRESSED|PAGE_COMPRESSION_LEVEL|TABLESPACE|(DATA|INDEX) DIRECTORY)\b":
        ActionKind.UNTRIED,
    r"RENAME (?!COLUMN\b|INDEX\b|KEY\b)": ActionKind.RENAME,
    r"ADD SYSTEM VERSIONING\b": ActionKind.VERSIONED,
}  # fmt: skip
"""Starts of actions, with names written NAME. All others are tried."""
PARTITION_BEHIND = re.compile(r"(PARTITION BY|REMOVE PARTITIONING)\b")
"""Follows other actions without a comma."""
OF_INDEX = re.compile(r"(DROP|RENAME|ALTER) (INDEX|KEY|CONSTRAINT) ")


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    """A name without its quotes."""
    kind: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """Returns it as it counts for the grammar."""
        if self.kind == "word":
            return self.text.upper()
        return self.text if self.kind == "sign" else "NAME"


@dataclass(frozen=True, slots=True)
class Action:
    text: str
    kind: ActionKind
    words: str
    names: tuple[str, ...]
    """Every word and name, in lower case."""

    def is_about(self, indexes: Sequence[str]) -> bool:
        """Whether it drops, renames or alters one of these indexes or constraints."""
        if OF_INDEX.match(self.words) is None:
            return False
        rest = self.names[4:] if self.names[2:4] == ("if", "exists") else self.names[2:]
        return rest[:1] != () and rest[0] in indexes


@dataclass(frozen=True, slots=True)
class MysqlAlterTable:
    """A statement about one table."""

    text: str
    table: Name
    actions: tuple[Action, ...]
    renamed: Name | None = None
    """The new name, if it has one."""

    def has(self, kind: ActionKind) -> bool:
        return any(each.kind is kind for each in self.actions)

    def is_logged(self, *, is_mariadb: bool) -> bool:
        is_passed_over = is_mariadb and self.has(ActionKind.LOGGED_BY_MYSQL)
        return not (is_passed_over or self.has(ActionKind.UNLOGGED))

    def actions_for_copy(self, absent: Sequence[str]) -> str:
        """Returns the actions for a copy that does not have these indexes; '' if there is none."""
        found = [
            each.text
            for each in self.actions
            if each.kind is ActionKind.TRIED and not each.is_about(absent)
        ]
        return ", ".join(found)


def parse_alter(text: str) -> MysqlAlterTable:
    """Parses a statement; raises ConfigError for anything but an ALTER TABLE."""
    tokens = list(_tokens(text))
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    at = 1
    while at < len(tokens) and tokens[at].word in BEFORE_TABLE:
        at += 1
    words = [each.word for each in tokens]
    if words[:1] != ["ALTER"] or words[at : at + 1] != ["TABLE"] or ";" in words:
        raise not_one_alter_table(text, page=PAGE)
    at += 1
    if words[at : at + 2] == ["IF", "EXISTS"]:
        at += 2
    table, at = _name(tokens, at)
    if words[at : at + 1] == ["NOWAIT"]:
        at += 1
    elif words[at : at + 1] == ["WAIT"]:
        at += 2
    if table is None or at >= len(tokens):
        raise not_one_alter_table(text, page=PAGE)
    parts = list(_parts(tokens[at:]))
    actions = tuple(_action(text, part) for part in parts)
    if actions[0].words.startswith(("PARTITION ", "REMOVE ")) or _is_of_partitions(actions[0]):
        actions = actions[:1]  # commas behind it part the names of partitions
    return _statement(text, table, actions, parts)


def _statement(
    text: str, table: Name, actions: tuple[Action, ...], parts: Sequence[Sequence[_Token]]
) -> MysqlAlterTable:
    found, renamed = MysqlAlterTable(text.strip().rstrip("; \n"), table, actions), None
    for action, part in zip(actions, parts, strict=False):
        if action.kind is ActionKind.TRIED and re.search(r"\bREFERENCES\b", action.words):
            raise has_foreign_key(text)
        if action.kind is ActionKind.RENAME:
            is_filled = part[1].word in ("TO", "AS", "=")
            renamed, _ = _name(part, 1 + is_filled)
    is_alone = not any(
        each.kind is ActionKind.TRIED
        or (each.kind is ActionKind.UNTRIED and not each.words.startswith(("ALGORITHM", "LOCK")))
        for each in actions
    )
    if not is_alone and (renamed is not None or found.has(ActionKind.VERSIONED)):
        raise several_actions(text)
    return MysqlAlterTable(found.text, table, actions, renamed)


def _tokens(text: str) -> Iterator[_Token]:
    for found in TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if (kind == "space" and not found[0].isspace()) or kind in ("open", "close"):
            raise not_one_alter_table(text, page=PAGE)
        quotes = {"ticked": "`", "double": '"'}.get(kind, "")
        inner = found[kind].replace(quotes * 2, quotes) if quotes else found[0]
        if kind != "space":
            yield _Token(inner, kind, found.start(), found.end())


def _name(tokens: Sequence[_Token], at: int) -> tuple[Name | None, int]:
    """Returns the table's name at that place, and the place behind it."""
    if at >= len(tokens) or tokens[at].kind not in NAMES:
        return None, at
    if at + 2 < len(tokens) and tokens[at + 1].text == "." and tokens[at + 2].kind in NAMES:
        return Name(tokens[at + 2].text, tokens[at].text), at + 3
    return Name(tokens[at].text, ""), at + 1


def _parts(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Parts the actions at their commas, and what is said of partitions behind them."""
    depth, start = 0, 0
    for at, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
            if token.text == "," and not depth and at > start:
                yield tokens[start:at]
                start = at + 1
        elif not depth and at > start and _is_behind(tokens[at : at + 2]):
            yield tokens[start:at]
            start = at
    if start < len(tokens):
        yield tokens[start:]


def _is_behind(tokens: Sequence[_Token]) -> bool:
    return PARTITION_BEHIND.match(" ".join(each.word for each in tokens)) is not None


def _action(text: str, part: Sequence[_Token]) -> Action:
    words = " ".join(each.word for each in part)
    shape = re.sub(r"^(ADD CONSTRAINT) (?!FOREIGN\b)\S+ (?=FOREIGN\b)", r"\1 NAME ", words)
    shape = re.sub(r"^(ADD (FULLTEXT|VECTOR)) (?!INDEX\b|KEY\b|\()\S+", r"\1 NAME", shape)
    kind = next((kind for start, kind in KINDS.items() if re.match(start, shape)), ActionKind.TRIED)
    names = tuple(each.text.lower() for each in part if each.kind in NAMES)
    return Action(text[part[0].start : part[-1].end], kind, words, names)


def _is_of_partitions(action: Action) -> bool:
    return re.match(r"[A-Z]+ (PARTITION|TABLESPACE)\b", action.words) is not None
