"""The forms of ALTER TABLE on docs/mysql.md: statements, and what the page says of each."""

from dataclasses import dataclass
from typing import Literal

T = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v varchar(50), n int NOT NULL DEFAULT 1,"
    " e enum('x', 'it''s \\\\') DEFAULT NULL, at timestamp NULL)"
)
KEYLESS = "CREATE TABLE {t} (id int NOT NULL, v varchar(50), n int NOT NULL)"
INDEXED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v varchar(50), n int NOT NULL, UNIQUE KEY u (n),"
    " KEY i (v), FULLTEXT KEY words (v), CONSTRAINT {t}_fk FOREIGN KEY (n) REFERENCES parents (id))"
)
PARENTS = (
    "CREATE TABLE IF NOT EXISTS parents (id int PRIMARY KEY)",
    "INSERT IGNORE INTO parents VALUES (0), (1), (2), (3)",
)
PARTS = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v varchar(50), n int) PARTITION BY RANGE (id)"
    " (PARTITION low VALUES LESS THAN (2), PARTITION high VALUES LESS THAN (1000))"
)
REORGANIZED = (
    "REORGANIZE PARTITION NO_WRITE_TO_BINLOG low INTO (PARTITION low VALUES LESS THAN (2))"
)
LIKE_PARTS = "CREATE TABLE {t}x (id int PRIMARY KEY, v varchar(50), n int)"
VERSIONED = T + " WITH SYSTEM VERSIONING"

Server = Literal["", "mysql", "mariadb"]


@dataclass(frozen=True, slots=True)
class Line:
    form: str
    outcome: str
    statements: tuple[str, ...]
    """Each tried alone, on a table of its own."""
    made: tuple[str, ...] = (T,)
    only: Server = ""


LINES = [
    Line("ADD COLUMN, with or without a default, generated or not", "read again", (
        "ADD c int", "ADD COLUMN c int DEFAULT 7 FIRST", "ADD (c int, d text NOT NULL)",
        "ADD c timestamp DEFAULT CURRENT_TIMESTAMP", "ADD c int AS (n + 1) STORED",
        "ADD c int AS (n + 1) VIRTUAL, ALGORITHM=DEFAULT, LOCK=DEFAULT",
        "ADD `c,d` int COMMENT ','",
    )),
    Line("DROP COLUMN", "read again", ("DROP v", "DROP COLUMN `v`, DROP e")),
    Line("RENAME COLUMN, CHANGE", "read again", (
        "RENAME COLUMN v TO w", "CHANGE v w varchar(50)",
        "RENAME COLUMN v TO e, RENAME COLUMN e TO v",
    )),
    Line("MODIFY, CHANGE to another type, place or nullability", "read again", (
        "MODIFY n bigint NOT NULL", "MODIFY v text", "MODIFY v varchar(60) AFTER id",
        "MODIFY e enum('x', 'it''s \\\\', 'y')", "MODIFY v varchar(50) NOT NULL",
        "MODIFY at datetime(6)", "MODIFY v varchar(50) CHARACTER SET latin1",
    )),
    Line("CONVERT TO CHARACTER SET", "read again", ("CONVERT TO CHARACTER SET latin1",)),
    Line("ALTER COLUMN SET DEFAULT, DROP DEFAULT", "read again", (
        "ALTER n SET DEFAULT 5", "ALTER COLUMN n DROP DEFAULT",
    )),
    Line("ADD, DROP, RENAME of an index", "read again", (
        "ADD INDEX more (n)", "ADD UNIQUE (n, v)", "DROP INDEX u", "RENAME INDEX i TO j",
        "ADD FULLTEXT (v)", "ADD FULLTEXT KEY more (v)", "DROP INDEX words",
        "DROP INDEX words, ADD c int",
    ), (*PARENTS, INDEXED.replace("UNIQUE KEY u (n)", "KEY k (n), UNIQUE KEY u (v, n)"))),
    Line("ADD, DROP of a foreign key or a check", "read again", (
        "DROP FOREIGN KEY {t}_fk", "DROP FOREIGN KEY {t}_fk, DROP KEY i",
        "ADD FOREIGN KEY (id) REFERENCES parents (id)",
        "ADD CONSTRAINT {t}_two FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE",
        "ADD CONSTRAINT FOREIGN KEY (id) REFERENCES parents (id)",
        "ADD CONSTRAINT ck CHECK (n < 99)",
    ), (*PARENTS, INDEXED)),
    Line("FORCE, ENGINE, other options, ORDER BY", "read again", (
        "FORCE", "ENGINE=InnoDB", "COMMENT 'a, b (c'", "AUTO_INCREMENT=100", "ORDER BY v, n",
        "ROW_FORMAT=DYNAMIC", "ROW_FORMAT=COMPACT, ADD c int", "DISABLE KEYS",
        "DEFAULT CHARACTER SET latin1",
    )),
    Line("DROP, TRUNCATE, REORGANIZE, EXCHANGE and others of PARTITION", "read again", (
        "DROP PARTITION low", "TRUNCATE PARTITION low, high",
        "ADD PARTITION (PARTITION top VALUES LESS THAN MAXVALUE)",
        "REORGANIZE PARTITION high INTO (PARTITION mid VALUES LESS THAN (3),"
        " PARTITION high VALUES LESS THAN (1000))",
        "EXCHANGE PARTITION low WITH TABLE {t}x", "REBUILD PARTITION low, high",
        "ANALYZE PARTITION ALL", "REMOVE PARTITIONING", "PARTITION BY HASH (id) PARTITIONS 3",
        "ADD c int PARTITION BY HASH (id) PARTITIONS 2", "ADD c int",
    ), (PARTS, LIKE_PARTS)),
    Line("CHECK PARTITION; ANALYZE, OPTIMIZE, REPAIR PARTITION NO_WRITE_TO_BINLOG", "followed", (
        "CHECK PARTITION ALL", "ANALYZE PARTITION LOCAL low, high",
        "REPAIR PARTITION NO_WRITE_TO_BINLOG low", "OPTIMIZE PARTITION LOCAL ALL",
    ), (PARTS,)),
    Line("REBUILD, REORGANIZE, COALESCE PARTITION NO_WRITE_TO_BINLOG, in MySQL", "read again", (
        "REBUILD PARTITION LOCAL low", REORGANIZED,
    ), (PARTS,), "mysql"),
    Line("REBUILD, REORGANIZE, COALESCE PARTITION NO_WRITE_TO_BINLOG, in MariaDB", "followed", (
        "REBUILD PARTITION LOCAL low", REORGANIZED,
    ), (PARTS,), "mariadb"),
    Line("DROP PRIMARY KEY and ADD PRIMARY KEY of other columns", "new key", (
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
    )),
    Line("ADD PRIMARY KEY, of a table that had none", "new key", (
        "ADD PRIMARY KEY (id)", "MODIFY id int NOT NULL AUTO_INCREMENT PRIMARY KEY",
    ), (KEYLESS,)),
    Line("another name or type of a column of the key", "new key", (
        "MODIFY id bigint", "RENAME COLUMN id TO number", "CHANGE id id int unsigned",
    )),
    Line("DROP PRIMARY KEY and ADD PRIMARY KEY of the same columns", "read again", (
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    )),
    Line("DROP PRIMARY KEY", "left out", ("DROP PRIMARY KEY", "DROP id")),
    Line("any of a table without a key", "read again", ("ADD c int", "DROP v"), (KEYLESS,)),
    Line("a type or a character set that is not supported", "left out", (
        "ADD c text CHARACTER SET hp8", "MODIFY v varchar(50) CHARACTER SET macroman",
    )),
    Line("ADD SYSTEM VERSIONING", "left out", ("ADD SYSTEM VERSIONING",), only="mariadb"),
    Line("RENAME TO, to a name that `tables` chooses", "new topic", (
        "RENAME TO {t}_new", "RENAME AS {t}_renewed", "RENAME {t}_again",
    )),
    Line("RENAME TO, to a name that `tables` leaves out", "left out", ("RENAME TO _{t}_old",)),
]  # fmt: skip
