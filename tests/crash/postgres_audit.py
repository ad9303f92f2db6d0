"""A table whose triggers write down every change, and who changes it: in PostgreSQL."""

from collections.abc import Sequence
from random import Random
from typing import Any

import psycopg

TABLES = (
    "CREATE TABLE orders (shop text, id int, note text, PRIMARY KEY (shop, id))",
    "INSERT INTO orders VALUES ('marker', 0, '')",
    "CREATE TABLE audit (number bigserial PRIMARY KEY, at xid DEFAULT pg_current_xact_id()::xid,"
    " letter text NOT NULL, shop text, id int, note text)",
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP = 'TRUNCATE' THEN INSERT INTO audit (letter) VALUES ('t'); RETURN NULL; END IF;"
    " IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND (OLD.shop, OLD.id) <> (NEW.shop, NEW.id)) THEN"
    " INSERT INTO audit (letter, shop, id) VALUES ('d', OLD.shop, OLD.id); END IF;"
    " IF TG_OP <> 'DELETE' THEN INSERT INTO audit (letter, shop, id, note) VALUES ("
    " CASE WHEN TG_OP = 'INSERT' OR (OLD.shop, OLD.id) <> (NEW.shop, NEW.id) THEN 'c' ELSE 'u' END,"
    " NEW.shop, NEW.id, NEW.note); END IF; RETURN NULL; END $$",
    "CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON orders"
    " FOR EACH ROW EXECUTE FUNCTION keep()",
    "CREATE TRIGGER truncates AFTER TRUNCATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION keep()",
)
CHANGES = (
    "SELECT letter, shop, id, note, (extract(epoch FROM pg_xact_commit_timestamp(at)) * 1000000)"
    "::bigint FROM audit WHERE number > %s ORDER BY number"
)


class AuditWriter:
    """Few keys, so that most transactions touch some of them more than once."""

    rows_per_s = 400

    def __init__(self, *, seed: int) -> None:
        self._random = Random(seed)

    def transact(self, connection: psycopg.Connection) -> int:
        is_given_up, rows = self._random.random() < 0.05, 0
        try:
            with connection.transaction(force_rollback=is_given_up):
                for _ in range(self._random.choice((1, 1, 2, 3, 12))):
                    rows += max(connection.execute(*self._statement()).rowcount, 0)
                with connection.transaction(force_rollback=True):
                    connection.execute("UPDATE orders SET note = 'never' WHERE id = 1")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            return 0
        return 0 if is_given_up else rows

    def _statement(self) -> tuple[Any, Sequence[Any]]:
        shop, id = self._random.choice(("a", "é", "zz")), self._random.randrange(30)
        note, kind = str(self._random.random()), self._random.random()
        if kind < 0.01:
            return "TRUNCATE orders", ()
        if kind < 0.3:
            return "DELETE FROM orders WHERE shop = %s AND id = %s", (shop, id)
        if kind < 0.4:
            moved = "UPDATE orders SET id = %s, note = %s WHERE shop = %s AND id = %s"
            return moved, (self._random.randrange(30), note, shop, id)
        put = (
            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (shop, id)"
            " DO UPDATE SET note = excluded.note"
        )
        return put, (shop, id, note)
