"""An expression of a pipeline file computes one value from one row, and can reach nothing else."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, TransformFailed
from headwater.pipelines.transforms.expressions import Expressions
from tests.pipelines.transforms.table_changes import INSERT, changes_of, schema_of

SCHEMA = schema_of(
    {
        "id": pa.int64(),
        "status": pa.string(),
        "created_at": pa.timestamp("us"),
        "seen_at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "address": pa.struct([pa.field("city", pa.string())]),
        "content": pa.binary(),
    }
)
USEFUL = [
    "status IN ('a', 'b') OR status LIKE 'c%' AND NOT (status ILIKE '%D')",
    "CASE WHEN status = 'a' THEN 1 ELSE 2 END",
    "id BETWEEN 1 AND 3",
    "coalesce(nullif(status, ''), 'none') -- a comment at the end",
    "extract(year FROM created_at) + year(seen_at)",
    "created_at + INTERVAL 1 DAY",
    "date_trunc('month', created_at)::DATE",
    "strftime(created_at, '%Y-%m')",
    "len(list_filter(tags, lambda tag: tag <> status))",
    "list_transform([1, 2], lambda x: x + id)",
    "address.city || status",
    "regexp_extract(status, '(\\d+)', 1)",
    "TRY_CAST(status AS INTEGER)",
    "json_extract_string(status, '$.name')",
    "sha256(content)",
    "status COLLATE NOCASE = 'A'",
    "status ~ '^x'",
    "id % 2 = 0 AND id IS NOT NULL",
    "'constant'",
    "greatest(id, 3) ** 2",
]
REFUSED = [
    "1; DROP TABLE x",
    "1) FROM range(3) --",
    "1), (2",
    "1 FROM headwater WHERE (true",
    "id /* and no end",
    "",
    "*",
    "COLUMNS(*)",
    "#1",
    "?",
    "(SELECT 1)",
    "EXISTS (SELECT 1)",
    "id IN (SELECT id FROM headwater)",
    "row_number() OVER ()",
    "sum(id)",
    "geomean(id)",
    "list(id)",
    "unnest(tags)",
    "getenv('HOME')",
    "current_setting('threads')",
    "getvariable('x')",
    "nextval('x')",
    "random()",
    "now()",
    "today()",
    "age(created_at)",
    "uuid()",
    "version()",
    "range(1000000000)",
    "repeat([1], 1000000000)",
    "read_text('/etc/passwd')",
    "read_csv('/etc/passwd')",
    "glob('/*')",
    "query('SELECT 1')",
    "pg_sleep(1)",
    "sleep_ms(1)",
    "write_log('x')",
    "json_serialize_plan('SELECT 1')",
    "no_such_function(id)",
]


@pytest.fixture(scope="module")
def expressions() -> Expressions:
    return Expressions()


@pytest.mark.parametrize("text", USEFUL)
def test_expressions_of_many_forms_are_understood(expressions: Expressions, text: str) -> None:
    rows = changes_of(SCHEMA, (INSERT, {"id": 1, "status": "{}"})).rows

    [answers] = expressions.prepare({"x": text}, SCHEMA).evaluate(rows)

    assert len(answers) == 1


@pytest.mark.parametrize("text", REFUSED)
def test_an_expression_of_more_than_the_row_is_refused(expressions: Expressions, text: str) -> None:
    with pytest.raises(ConfigError):
        expressions.check(text)


@pytest.mark.parametrize("text", ["current_date", "current_user", "rows.id", '"rows 1"', "tag"])
def test_a_name_that_is_no_column_means_nothing_else(expressions: Expressions, text: str) -> None:
    with pytest.raises(ConfigError, match="does not have this column"):
        expressions.prepare({"x": text}, SCHEMA)


def test_a_misspelt_function_is_met_with_a_guess(expressions: Expressions) -> None:
    with pytest.raises(ConfigError, match="did you mean substring"):
        expressions.check("substrin(status, 1)")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{file}')",
        "COPY (SELECT 1) TO '{file}.copy'",
        "ATTACH '{file}.db'",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '100GB'",
        "SELECT * FROM '{file}'",
        "CREATE SECRET s (TYPE s3)",
    ],
)
def test_a_statement_that_got_through_could_reach_nothing(
    expressions: Expressions, tmp_path: Path, statement: str
) -> None:
    import duckdb

    (tmp_path / "secret.csv").write_text("a\n1\n")

    with pytest.raises(duckdb.Error):
        expressions._database.sql(statement.format(file=tmp_path / "secret.csv")).fetchall()

    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_no_variable_of_this_program_is_a_table(expressions: Expressions) -> None:
    import duckdb

    secrets = pa.table({"secret": ["x"]})

    with pytest.raises(duckdb.Error):
        expressions._database.sql("SELECT * FROM secrets").fetchall()

    assert len(secrets) == 1


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    prepared = Expressions(memory_bytes_max=16 << 20).prepare(
        {"x": " || ".join(["status"] * 20)}, SCHEMA
    )
    rows = changes_of(SCHEMA, (INSERT, {"id": 1, "status": "x" * (1 << 20)})).rows

    with pytest.raises(TransformFailed, match="no single row is the reason"):
        prepared.evaluate(rows)


@pytest.mark.slow
def test_an_expression_that_takes_too_long_is_interrupted_and_leaves_the_next_batch_alone() -> None:
    slow = "levenshtein(status, status || status)"
    expressions = Expressions()
    prepared = expressions.prepare({"x": slow}, SCHEMA, ms_max=20)
    one = changes_of(SCHEMA, (INSERT, {"id": 1, "status": "private" * 40})).rows
    many = one.take(pa.array([0] * 20_000))

    with pytest.raises(TransformFailed, match="takes longer than its limit") as failed:
        prepared.evaluate(many)

    assert "private" not in str(failed.value)
    assert expressions.prepare({"x": "length(status)"}, SCHEMA).evaluate(one)[0].to_pylist() == [
        280
    ]


def test_answers_belong_to_the_batch_that_was_asked(expressions: Expressions) -> None:
    prepared = expressions.prepare({"doubled": "id * 2", "one": "1"}, SCHEMA)

    found = [
        prepared.evaluate(changes_of(SCHEMA, *[(INSERT, {"id": n}) for n in numbers]).rows)
        for numbers in (range(5), [], range(5_000, 5_002), [7])
    ]

    assert [column.to_pylist() for column, _ in found] == [
        [0, 2, 4, 6, 8], [], [10_000, 10_002], [14],
    ]  # fmt: skip
    assert [len(ones) for _, ones in found] == [5, 0, 2, 1]


def test_many_rows_come_back_in_their_order(expressions: Expressions) -> None:
    prepared = expressions.prepare({"x": "id + 1"}, SCHEMA)
    numbers = list(range(100_000))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(numbers), *[pa.nulls(len(numbers), each.type) for each in SCHEMA.columns[1:]]],
        schema=SCHEMA.arrow,
    )

    [answers] = prepared.evaluate(batch)

    assert answers.to_pylist() == [number + 1 for number in numbers]


ENDING = """
import gc
import pyarrow as pa
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.transforms.expressions import Expressions

schema = TableSchema(TableId("", "t"), (Column("x", pa.int64(), is_nullable=False),), ("x",))
expressions = Expressions()
prepared = expressions.prepare({"f": "x > 1"}, schema)
gc.freeze()
prepared.evaluate(pa.RecordBatch.from_pylist([{"x": 1}], schema=schema.arrow))
"""


@pytest.mark.slow
def test_a_program_that_used_expressions_ends_without_a_word() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
