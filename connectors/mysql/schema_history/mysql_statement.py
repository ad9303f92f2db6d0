"""Reads what a statement of the binary log does to captured tables, without parsing its grammar."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.core_log.model.table_schema import TableId

TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*|--(?=\s|$)[^\n]*|/\*(?!M?!).*?\*/)
    |(?P<open>/\*M?!\d*)|(?P<close>\*/)
    |`(?P<ticked>(?:[^`]|``)*)`
    |"(?P<double>(?:[^"\\]|""|\\.)*)"
    |(?P<string>'(?:[^'\\]|''|\\.)*')
    |(?P<word>[\w$\x80-\U0010ffff]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Comments for certain versions hold code."""


class StatementKind(Enum):
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    ROLLBACK_TO = "rollback to"
    SAVEPOINT = "savepoint"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    TRUNCATE = "truncate"
    CREATE_TABLE = "create table"
    HARMLESS = "harmless"
    CHANGE = "change"
    """Any other DDL: it may change each table that it names."""
    ROWS = "rows"
    """A change of rows, which a server logs as a statement unless it logs rows."""


@dataclass(frozen=True, slots=True)
class Name:
    text: str
    qualifier: str
    """The name before a dot; '' if there is none."""


@dataclass(frozen=True, slots=True)
class MysqlStatement:
    kind: StatementKind
    names: tuple[Name, ...] = ()
    database: str = ""
    """The session's database."""
    xid: str = ""
    is_of_database: bool = False
    """A database is dropped, with all of its tables."""

    def may_name(self, table: TableId) -> bool:
        """Whether the statement may name the table; letter case is not compared."""
        namespace, name = table.namespace.lower(), table.name.lower()
        for each in self.names:
            text, qualifier = each.text.lower(), each.qualifier.lower()
            if self.is_of_database and text == namespace:
                return True
            if text == name and (qualifier or self.database.lower() or namespace) == namespace:
                return True
        return False

    def names_exactly(self, table: TableId) -> bool:
        """Whether it names the table on a server that compares the letter case of names."""
        return any(
            (each.qualifier or self.database or table.namespace, each.text) == table
            for each in self.names
        )


START_WORDS = {
    "BEGIN": StatementKind.BEGIN,
    "COMMIT": StatementKind.COMMIT,
    "SAVEPOINT": StatementKind.SAVEPOINT,
    "RELEASE": StatementKind.SAVEPOINT,
}
HARMLESS = {
    "ANALYZE", "CHECK", "CHECKSUM", "FLUSH", "GRANT", "REVOKE", "SET", "RESET", "KILL", "INSTALL",
    "UNINSTALL", "SHUTDOWN", "PURGE", "CHANGE", "START", "STOP", "USE", "HELP", "BINLOG", "CACHE",
}  # fmt: skip
ROWS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "DO", "SELECT", "EXECUTE",
        "HANDLER", "IMPORT"}  # fmt: skip
HARMLESS_OBJECTS = {
    "USER", "ROLE", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "SERVER", "INDEX",
    "UNDO", "LOGFILE", "SEQUENCE", "PACKAGE", "RESOURCE", "INSTANCE",
}  # fmt: skip
BEFORE_OBJECT = {
    "OR", "REPLACE", "TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "ALGORITHM", "DEFINER", "SQL",
    "SECURITY", "IF", "NOT", "EXISTS", "ONLINE", "OFFLINE", "IGNORE", "VECTOR", "AGGREGATE",
    "INVOKER", "UNDEFINED", "MERGE", "TEMPTABLE", "IGNORED",
}  # fmt: skip
BEFORE_TABLE = {"TABLE", "TO", "EXISTS", "WITH", "LIKE"}
"""Reserved words, which are no names unless they are quoted."""
DATABASES = {"DATABASE", "SCHEMA"}
XA_KINDS = {
    "START": StatementKind.XA_START, "BEGIN": StatementKind.XA_START,
    "END": StatementKind.XA_END, "COMMIT": StatementKind.XA_COMMIT,
    "ROLLBACK": StatementKind.XA_ROLLBACK,
}  # fmt: skip


BEGIN = MysqlStatement(StatementKind.BEGIN)


def read_statement(text: str, database: str) -> MysqlStatement:
    """Returns what the statement may do; `database` is its session's."""
    if text == "BEGIN":
        return BEGIN
    tokens = _without_settings(list(_tokens(text)))
    words = [token.upper() for token, is_word in tokens if is_word]
    first = words[0] if words else ""
    if first in START_WORDS:
        return MysqlStatement(START_WORDS[first])
    if first == "ROLLBACK":
        has_savepoint = "TO" in words[1:3]
        return MysqlStatement(
            StatementKind.ROLLBACK_TO if has_savepoint else StatementKind.ROLLBACK
        )
    if first == "XA":
        return _xa(text, words)
    if not words or first in HARMLESS:
        return MysqlStatement(StatementKind.HARMLESS)
    names = tuple(_names(tokens))
    if first in ROWS:
        return MysqlStatement(StatementKind.ROWS, names, database)
    if first == "TRUNCATE":
        return MysqlStatement(StatementKind.TRUNCATE, _truncated_table(tokens), database)
    return _ddl(first, words, names, database)


def _ddl(
    first: str, words: Sequence[str], names: tuple[Name, ...], database: str
) -> MysqlStatement:
    objects = [word for word in words[1:] if word not in BEFORE_OBJECT]
    subject = objects[0] if objects else ""
    if first == "RENAME" and subject in ("USER", "ROLE"):
        return MysqlStatement(StatementKind.HARMLESS)
    if first in ("CREATE", "ALTER", "DROP"):
        if subject in DATABASES:
            is_drop = first == "DROP"
            kind = StatementKind.CHANGE if is_drop else StatementKind.HARMLESS
            return MysqlStatement(kind, names, database, is_of_database=is_drop)
        is_harmless = subject in HARMLESS_OBJECTS or words[1:2] == ["DEFINER"]
        if is_harmless and not any(each.text.upper() == "PRIMARY" for each in names):
            return MysqlStatement(StatementKind.HARMLESS)
        if first == "CREATE" and subject == "TABLE":
            return MysqlStatement(StatementKind.CREATE_TABLE, _made_table(names), database)
    return MysqlStatement(StatementKind.CHANGE, names, database)


def _without_settings(tokens: Sequence[tuple[str, bool]]) -> Sequence[tuple[str, bool]]:
    """Returns the statement within `SET STATEMENT variable=value FOR ...` of MariaDB."""
    words = [token.upper() if is_word else "" for token, is_word in tokens]
    if words[:2] == ["SET", "STATEMENT"] and "FOR" in words:
        return tokens[words.index("FOR") + 1 :]
    return tokens


def _truncated_table(tokens: Sequence[tuple[str, bool]]) -> tuple[Name, ...]:
    """Returns the one name: behind it may be `WAIT` or `NOWAIT`, which are no tables."""
    rest = tokens[1:]
    if rest and rest[0][1] and rest[0][0].upper() == "TABLE":
        rest = rest[1:]
    return tuple(_names(rest))[:1]


def _made_table(names: tuple[Name, ...]) -> tuple[Name, ...]:
    """Returns the name of the table that is made: those that it is like do not change."""
    texts = [each.text.upper() for each in names]
    at = texts.index("TABLE") + 1
    if texts[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    return names[at : at + 1]


def _xa(text: str, words: Sequence[str]) -> MysqlStatement:
    kind = XA_KINDS.get(words[1] if len(words) > 1 else "", StatementKind.HARMLESS)
    xid = text.split(None, 2)[2] if len(text.split(None, 2)) > 2 else ""
    return MysqlStatement(kind, xid=re.sub(r"\s+", "", xid.replace("ONE PHASE", "")))


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yields names and signs; True for words that are not quoted."""
    for found in TOKEN.finditer(text):
        kind = found.lastgroup
        if kind == "word":
            yield found[0], True
        elif kind == "ticked":
            yield found["ticked"].replace("``", "`"), False
        elif kind == "double":
            yield found["double"].replace('""', '"'), False
        elif kind == "sign":
            yield f"\0{found[0]}", False


def _names(tokens: Sequence[tuple[str, bool]]) -> Iterator[Name]:
    """Yields everything that may be the name of a table."""
    texts = [token for token, _ in tokens]
    for at, text in enumerate(texts):
        if text.startswith("\0"):
            continue
        if at + 1 < len(texts) and texts[at + 1] == "\0.":
            continue
        is_qualified = at > 1 and texts[at - 1] == "\0." and not _ends_clause(*tokens[at - 2])
        yield Name(text, texts[at - 2] if is_qualified else "")


def _ends_clause(token: str, is_word: bool) -> bool:
    """Whether no database ends here: MariaDB takes `.t` for a table of the session's database."""
    return token.startswith("\0") or (is_word and token.upper() in BEFORE_TABLE)
