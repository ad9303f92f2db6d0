"""A column that a rule hides gets another name: nothing of it enters the log in the clear."""

import hmac
from pathlib import Path

import pytest

from core_log.clock import SystemClock
from core_log.embedded import EmbeddedLog
from core_log.errors import ConfigError
from core_log.log import TopicPartition
from core_log.settings import BrokerSettings
from pipelines.file.loading import load
from pipelines.journal.control import Desired
from pipelines.loops.build import run_unit
from tests.connectors.postgres.test_into_the_log import Flow, ignore
from tests.databases import Guest

FILE = """
pipeline: {{name: shop, salt: a secret of sixteen or more}}
source: {{type: postgres, url: "{url}", tables: [public.*]}}
transform: [{rule}]
sink: {{type: sql, url: "sqlite:///target.db"}}
"""
USERS = TopicPartition("shop.public.users", 0)
PATTERN, EXACT = "public.*", "public.users"


async def run(guest: Guest, directory: Path, rule: str) -> bytes:
    """What the log holds of the users, once a run of the source has come to its end."""
    file = directory / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, rule=rule))
    [loaded] = load(file, environment={})
    settings = BrokerSettings(data=directory / "data", listen="127.0.0.1:0")
    log = await EmbeddedLog.open(settings)
    try:
        await run_unit(
            loaded,
            "source",
            log,
            desired=lambda: Desired("shop"),
            clock=SystemClock(),
            report=ignore,
            until_end=True,
        )
        found = await Flow(guest, log, loaded, directory).read(USERS)
        return b"\n".join(value or b"" for value in found.values.to_pylist())
    finally:
        await log.close()


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


@pytest.mark.parametrize(
    ("hide", "cure"),
    [
        ("mask: {email: hash}", "mask: {mail: hash}"),
        ("drop: [email]", "drop: [mail]"),
    ],
)
async def test_columns_that_cannot_be_told_apart_hold_the_table_before_the_log(
    guest: Guest, tmp_path: Path, hide: str, cure: str
) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, email text, note text)",
        "INSERT INTO users VALUES (1, 'secret one', 'a')",
    )
    guest.publish("users")
    await run(guest, tmp_path, f'{{table: "public.*", {hide}}}')

    guest.execute(
        "ALTER TABLE users RENAME email TO mail",
        "ALTER TABLE users DROP note, ADD city text",
        "INSERT INTO users VALUES (2, 'secret two', 'Rome')",
    )
    for _ in range(2):  # a restart is no cure
        with pytest.raises(ConfigError) as held:
            await run(guest, tmp_path, f'{{table: "public.*", {hide}}}')
    cured = await run(guest, tmp_path, f'{{table: "public.users", {cure}}}')

    assert held.value.facts["table"] == "public.users" and held.value.facts["column"] == "email"
    assert held.value.facts["new"] == "mail, city"
    assert "headwater resume" in held.value.hint
    assert cured.count(b'"op":"c"') == 1 and b"secret" not in cured


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
    with pytest.raises(ConfigError, match="was masked") as held:
        await run(guest, tmp_path, '{table: "public.*", mask: {mail: hash}}')
    cured = await run(guest, tmp_path, '{table: "public.*", mask: {mail: hash, email: hash}}')

    assert "add email" in held.value.hint
    assert cured.count(b'"op":"c"') == 1 and b"secret" not in cured
