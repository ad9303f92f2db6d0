"""About how many rows a table has is known before any of them is read."""

from contextlib import aclosing

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest


async def test_a_table_that_was_analyzed_says_how_many_rows_it_has_and_others_how_large_they_are(
    guest: Guest,
) -> None:
    guest.execute(
        "CREATE TABLE analyzed (id int PRIMARY KEY)",
        "CREATE TABLE divided (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF divided FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF divided FOR VALUES FROM (100) TO (1000)",
        "CREATE TABLE unknown (id int PRIMARY KEY) WITH (autovacuum_enabled = false)",
        *(
            f"INSERT INTO {table} SELECT generate_series(1, 500)"
            for table in ("analyzed", "divided", "unknown")
        ),
        "ANALYZE analyzed, low, high",
    )
    settings = PostgresSettings.model_validate({"url": guest.url, "tables": ["public.*"]})

    found = await PostgresSource(settings, source_context(until_end=True)).row_estimates()

    assert found[TableId("public", "analyzed")] == 500
    assert found[TableId("public", "divided")] == 500
    assert found[TableId("public", "unknown")] > 0


async def test_a_running_source_says_what_it_has_seen_at_its_start(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE early (id int PRIMARY KEY)",
        "CREATE PUBLICATION given FOR TABLE early WITH (publish_via_partition_root = true)",
    )
    given = {"name": "given", "create": "never"}
    settings = PostgresSettings.model_validate(
        {"url": guest.url, "tables": ["public.*"], "publication": given}
    )
    source = PostgresSource(settings, source_context(until_end=True))

    async with aclosing(source.changes({})) as batches:
        await anext(batches)
        guest.execute("CREATE TABLE late (id int PRIMARY KEY)")
        found = await source.row_estimates()

    assert found.keys() == {TableId("public", "early")}
