"""A column that a rule hides gets another name: nothing of it enters the log in the clear."""

import hmac
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import LogRejected, SourceUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.reports import RemarksMade, Report, Reporter
from tests.connectors.postgres.test_into_the_log import Flow
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

FILE = """
pipeline: {{name: shop, salt: a secret of sixteen or more}}
source: {{type: postgres, url: "{url}", tables: [public.*]}}
transform: [{rule}]
sink: {{type: sql, url: "sqlite:///target.db"}}
"""
USERS = TopicPartition("shop.public.users", 0)
ORDERS = TopicPartition("shop.public.orders", 0)
MEMBERS = TopicPartition("shop.public.members", 0)
HAS_ORDERS = "SELECT FROM pg_class WHERE relname = 'orders'"
ORDERED = ("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
PATTERN, EXACT = "public.*", "public.users"


@dataclass
class Ran:
    """What a run has left behind."""

    log: bytes
    """All values of the users' topic."""
    users: list[dict[str, Any]]
    """The rows that they come to."""
    orders: int
    """Records of another table."""
    left_out: list[RemarksMade]
    members: bytes
    """The same of the users' topic under another name."""


async def run(guest: Guest, directory: Path, rule: str) -> bytes:
    """What the log holds of the users, once a run of the source has come to its end."""
    return (await ran(guest, directory, rule)).log


async def ran(guest: Guest, directory: Path, rule: str) -> Ran:
    told = list[Report]()
    file = directory / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, rule=rule))
    [loaded] = load(file, environment={})
    settings = BrokerSettings(data=directory / "data", listen="127.0.0.1:0")
    log = await EmbeddedLog.open(settings)
    try:
        while not await has_ended(loaded, log, told.append):
            continue
        flow = Flow(guest, log, loaded, directory)
        found = await flow.read(USERS)
        pairs = list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True))
        orders = len((await flow.read(ORDERS)).values) if guest.rows(HAS_ORDERS) else 0
        left_out = [each for each in told if isinstance(each, RemarksMade) and each.left_out]
        log_bytes = b"\n".join(value or b"" for _, value in pairs)
        members = b""
        with suppress(LogRejected):  # without a row there is no topic
            values = (await flow.read(MEMBERS)).values.to_pylist()
            members = b"\n".join(value or b"" for value in values)
        return Ran(log_bytes, rows_of(pairs), orders, left_out, members)
    finally:
        await log.close()


async def has_ended(loaded: LoadedPipeline, log: Log, report: Reporter) -> bool:
    """False where a table that is left out was found to be well, so that another life begins."""
    try:
        await run_task(task_run(loaded, "source", log, report=report))
    except SourceUnavailable as error:
        assert "can be captured by now" in error.problem
        return False
    return True


def rows_of(pairs: list[tuple[bytes, bytes | None]]) -> list[dict[str, Any]]:
    """What is there when all records have been read."""
    rows: dict[bytes, dict[str, Any]] = {}
    for key, value in pairs:
        if key == TRUNCATE_KEY:
            rows.clear()
        elif value is None or (row := orjson.loads(value)["after"]) is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    return sorted(rows.values(), key=lambda row: int(row["id"]))


def hashed(value: str) -> bytes:
    return hmac.new(b"a secret of sixteen or more", value.encode(), "sha256").hexdigest().encode()


@pytest.mark.parametrize("table", [PATTERN, EXACT])
@pytest.mark.parametrize("hide", ["mask: {email: hash}", "drop: [email]"])
async def test_a_hidden_column_stays_hidden_under_another_name(
    guest: Guest, tmp_path: Path, table: str, hide: str
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
    )
    guest.publish("users")
    rule = f'{{table: "{table}", {hide}}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "INSERT INTO users VALUES (2, 'secret two')",
        "ALTER TABLE users RENAME email TO mail",
        "INSERT INTO users VALUES (3, 'secret three')",
    )
    await run(guest, tmp_path, rule)
    guest.execute(
        "ALTER TABLE users RENAME mail TO post", "INSERT INTO users VALUES (4, 'secret four')"
    )
    found = await run(guest, tmp_path, rule)

    assert found.count(b'"op":"c"') == 3 and b"secret" not in found
    values = [f"secret {each}" for each in ("one", "two", "three", "four")]
    is_masked = hide.startswith("mask")
    assert [hashed(each) in found for each in values] == [is_masked] * 4


@pytest.mark.parametrize("hide", ["mask: {email: hash}", "drop: [email]"])
async def test_a_hidden_column_stays_hidden_when_another_one_takes_its_name(
    guest: Guest, tmp_path: Path, hide: str
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
    )
    guest.publish("users")
    rule = f'{{table: "public.*", {hide}}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "INSERT INTO users VALUES (2, 'secret two')",
        "ALTER TABLE users RENAME email TO mail; ALTER TABLE users ADD email text",
        "INSERT INTO users VALUES (3, 'secret three', 'secret four')",
    )
    found = await run(guest, tmp_path, rule)

    assert found.count(b'"op":"c"') == 2 and b"secret" not in found


@pytest.mark.parametrize("hide", ["mask: {email: hash}", "drop: [email]"])
async def test_columns_that_cannot_be_told_apart_hold_the_table_before_the_log(
    guest: Guest, tmp_path: Path, hide: str
) -> None:
    """Once the catalogue tells them apart, the table is read again under its form of now."""
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text, note text)",
        "INSERT INTO users VALUES (1, 'secret one', 'a')",
        *ORDERED,
    )
    guest.publish("users", "orders")
    rule = f'{{table: "public.*", {hide}}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "ALTER TABLE users RENAME email TO mail",
        "ALTER TABLE users DROP note, ADD city text",
        "INSERT INTO users VALUES (2, 'secret two', 'Rome')",
        "INSERT INTO orders VALUES (2)",
    )
    held = await ran(guest, tmp_path, rule)
    after = await ran(guest, tmp_path, rule)
    guest.execute("UPDATE users SET city = 'Oslo' WHERE id = 1", "DELETE FROM users WHERE id = 2")
    later = await ran(guest, tmp_path, rule)

    [said] = {each.problem for each in held.left_out}
    assert "a masked or dropped column is gone" in said and "mail, city" in said
    assert held.left_out[0].left_out == ("public.users",) and b"secret" not in held.log
    assert (held.orders, after.orders) == (2, 2)
    assert after.users == [
        {"id": 1, "city": None, **shown(hide, "mail", "one")},
        {"id": 2, "city": "Rome", **shown(hide, "mail", "two")},
    ]
    assert later.users == [{"id": 1, "city": "Oslo", **shown(hide, "mail", "one")}]
    assert not later.left_out and b"secret" not in later.log


def shown(hide: str, name: str, number: str) -> dict[str, str]:
    return {name: hashed(f"secret {number}").decode()} if hide.startswith("mask") else {}


@pytest.mark.parametrize("cure", ["the rule", "the table"])
async def test_a_rule_that_no_longer_fits_holds_its_table_alone_until_one_of_both_is_cured(
    guest: Guest, tmp_path: Path, cure: str
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text, note text)",
        "INSERT INTO users VALUES (1, 'secret one', 'a')",
        *ORDERED,
    )
    guest.publish("users", "orders")
    rule = '{table: "public.users", mask: {email: hash, note: hash}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "ALTER TABLE users DROP note",
        "INSERT INTO users VALUES (2, 'secret two')",
        "DELETE FROM users WHERE id = 1",
        "INSERT INTO orders VALUES (2)",
    )
    held = [await ran(guest, tmp_path, rule) for _ in range(2)]  # a restart is no cure
    if cure == "the rule":
        rule = '{table: "public.users", mask: {email: hash}}'
    else:
        guest.execute("ALTER TABLE users ADD note text")
    after = await ran(guest, tmp_path, rule)

    for each in held:
        assert each.orders == 2 and b"secret" not in each.log
        assert [row["id"] for row in each.users] == [1]
        [said] = {remark.problem for remark in each.left_out}
        assert "the table does not have this column" in said and "column='note'" in said
    [row] = after.users
    assert (row["id"], row["email"]) == (2, hashed("secret two").decode())
    assert not after.left_out and b"secret" not in after.log


async def test_a_rule_for_both_names_lets_the_table_go_on(guest: Guest, tmp_path: Path) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
    )
    guest.publish("users")
    rule = '{table: "public.*", mask: {email: hash, mail: hash}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "ALTER TABLE users RENAME email TO mail",
        "INSERT INTO users VALUES (2, 'secret two')",
        "ALTER TABLE users ADD city text",
        "INSERT INTO users VALUES (3, 'secret three', 'Rome')",
    )
    found = await run(guest, tmp_path, rule)

    assert found.count(b'"op":"c"') == 2 and b"Rome" in found and b"secret" not in found


async def test_a_hidden_column_that_is_dropped_holds_nothing(guest: Guest, tmp_path: Path) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
    )
    guest.publish("users")
    rule = '{table: "public.*", mask: {email: hash}}'
    await run(guest, tmp_path, rule)

    guest.execute("ALTER TABLE users DROP email", "INSERT INTO users VALUES (2)")
    found = await run(guest, tmp_path, rule)

    assert found.count(b'"op":"c"') == 1


async def test_older_changes_stay_masked_where_the_rule_has_only_the_later_name(
    guest: Guest, tmp_path: Path
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
    )
    guest.publish("users")
    await run(guest, tmp_path, '{table: "public.*", mask: {email: hash}}')

    guest.execute(
        "INSERT INTO users VALUES (2, 'secret two')", "ALTER TABLE users RENAME email TO mail"
    )
    held = await ran(guest, tmp_path, '{table: "public.*", mask: {mail: hash}}')
    cured = await run(guest, tmp_path, '{table: "public.*", mask: {mail: hash, email: hash}}')

    assert "add email" in held.left_out[0].hint
    assert hashed("secret two") in cured and b"secret" not in cured


@pytest.mark.parametrize("hide", ["mask: {email: hash}", "drop: [email]"])
@pytest.mark.parametrize("also", ["", "ALTER TABLE members RENAME email TO mail"])
async def test_a_renamed_table_is_left_out_until_a_rule_hides_its_columns(
    guest: Guest, tmp_path: Path, hide: str, also: str
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text)",
        "INSERT INTO users VALUES (1, 'secret one')",
        *ORDERED,
    )
    guest.publish("users", "orders")
    rule = f'{{table: "{EXACT}", {hide}}}'
    await run(guest, tmp_path, rule)

    guest.execute(
        "INSERT INTO users VALUES (2, 'secret two')",
        "ALTER TABLE users RENAME TO members",
        *filter(None, [also]),
        "INSERT INTO members VALUES (3, 'secret three')",
        "INSERT INTO orders VALUES (2)",
    )
    held = [await ran(guest, tmp_path, rule) for _ in range(2)]  # a restart is no cure
    hides = hide.replace("email", "mail") if also else hide
    rule = f"{{table: {EXACT}, {hide}}}, {{table: public.members, {hides}}}"
    after = await ran(guest, tmp_path, rule)

    for each in held:
        assert each.orders == 2 and not each.members
        [said] = {remark.problem for remark in each.left_out}
        assert "public.members" in said and "has the columns of public.users" in said
    assert after.members.count(b'"op":') >= 3 and b"secret" not in after.members
    found = [hashed(f"secret {each}") in after.members for each in ("one", "two", "three")]
    assert found == [hide.startswith("mask")] * 3 and not after.left_out
