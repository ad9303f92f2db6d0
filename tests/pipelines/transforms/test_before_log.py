"""What a mask or a drop takes away never enters the log, in rows or in the rows before them."""

import hashlib
import hmac
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.spec import PipelineHead, TransformRule
from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    UPDATE,
    changes_of,
    schema_of,
    told,
)

USERS = schema_of(
    {
        "id": pa.int64(),
        "email": pa.string(),
        "phone": pa.string(),
        "born": pa.date32(),
        "ssn": pa.string(),
    },
    table="public.users",
)
ANNA = {
    "id": 1,
    "email": "anna@example.org",
    "phone": "030 1",
    "born": date(1990, 1, 2),
    "ssn": "7",
}
BERT = {"id": 2, "email": "bert@example.org", "phone": None, "born": None, "ssn": "8"}
SALT = b"salt"


def before_log(**rule: object) -> MasksAndDrops:
    return MasksAndDrops(
        [TransformRule.model_validate({"table": "public.users"} | rule)], salt=SALT
    )


def hashed(text: str) -> str:
    return hmac.new(SALT, text.encode(), hashlib.sha256).hexdigest()


def test_masked_and_dropped_columns_are_gone_from_rows_and_from_rows_before_them() -> None:
    transform = before_log(mask={"email": "hash", "phone": "redact", "born": "null"}, drop=["ssn"])

    hidden = transform.apply(changes_of(USERS, (INSERT, ANNA), (UPDATE, BERT), before=[None, ANNA]))

    anna = {"id": 1, "email": hashed("anna@example.org"), "phone": "***", "born": None}
    bert = {"id": 2, "email": hashed("bert@example.org"), "phone": None, "born": None}
    assert told(hidden) == [(INSERT, anna), (UPDATE, bert)]
    assert hidden.before is not None and hidden.before.to_pylist() == [None, anna]
    assert hidden.schema == transform.schema(USERS)
    assert hidden.schema.names == ("id", "email", "phone", "born")


def test_nothing_of_a_hidden_value_is_left_in_the_memory_that_is_encoded() -> None:
    transform = before_log(mask={"email": "hash", "phone": "redact"}, drop=["ssn"])

    hidden = transform.apply(changes_of(USERS, (UPDATE, ANNA), before=[ANNA]))

    assert hidden.before is not None
    buffers = [
        buffer.to_pybytes()
        for column in (*hidden.rows.columns, *hidden.before.flatten())
        for buffer in column.buffers()
        if buffer is not None
    ]
    assert not any(b"anna" in content or b"030" in content for content in buffers)


def test_batches_without_rows_before_them_keep_their_shape() -> None:
    transform = before_log(drop=["ssn"])
    given = changes_of(USERS, (INSERT, ANNA), before=[None]).filter(pa.array([False]))

    hidden = transform.apply(given)

    assert hidden.before is not None and len(hidden.before) == 0
    assert {field.name for field in hidden.before.type} == set(hidden.schema.names)


def test_a_hash_is_the_same_for_the_same_value_and_the_key_may_be_hashed() -> None:
    transform = before_log(mask={"id": "hash"})

    hidden = transform.apply(changes_of(USERS, (INSERT, ANNA), (DELETE, {"id": 1})))

    assert hidden.rows.column("id").to_pylist() == [hashed("1")] * 2
    assert hidden.schema.key == ("id",)
    assert hidden.schema.column("id").type == pa.string()


@pytest.mark.parametrize("salt", [b"", b"s", b"s" * 64, b"s" * 65, b"s" * 200])
def test_a_hash_is_what_the_standard_says_whatever_the_salt(salt: bytes) -> None:
    rule = TransformRule(table=("*",), mask={"email": "hash"})

    hidden = MasksAndDrops([rule], salt=salt).apply(changes_of(USERS, (INSERT, ANNA)))

    expected = hmac.new(salt, b"anna@example.org", hashlib.sha256).hexdigest()
    assert hidden.rows.column("email").to_pylist() == [expected]


def test_truncating_counts_characters() -> None:
    transform = before_log(mask={"email": "truncate(3)"})

    hidden = transform.apply(changes_of(USERS, (INSERT, ANNA | {"email": "äöü@example.org"})))

    assert hidden.rows.column("email").to_pylist() == ["äöü"]


def test_rules_apply_in_the_order_of_the_file_and_only_to_their_tables() -> None:
    rules = [
        TransformRule(table=("public.*",), mask={"email": "truncate(4)"}),
        TransformRule(table=("/.*users/",), mask={"email": "hash", "no_such": "hash"}),
        TransformRule(table=("*", "!public.*"), drop=("email",)),
    ]

    hidden = MasksAndDrops(rules, salt=SALT).apply(changes_of(USERS, (INSERT, ANNA)))

    assert hidden.rows.column("email").to_pylist() == [hashed("anna")]


def test_a_table_that_no_rule_means_passes_untouched() -> None:
    given = changes_of(schema_of(), (INSERT, {"id": 1}))

    assert before_log(mask={"email": "hash"}).apply(given) is given


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"mask": {"id": "redact"}}, "masked by hash only"),
        ({"drop": ["id"]}, "a key column cannot be dropped"),
        ({"mask": {"born": "redact"}}, "only text can be redacted"),
        ({"mask": {"emial": "hash"}}, "did you mean email?"),
        ({"drop": ["emial"]}, "the table does not have this column"),
    ],
)
def test_a_rule_that_would_not_hide_what_it_says_is_refused(
    rule: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        before_log(**rule).schema(USERS)


def test_a_salt_without_a_secret_is_stable_and_differs_between_pipelines() -> None:
    shop, shop_again = salt_of(PipelineHead(name="shop")), salt_of(PipelineHead(name="shop"))
    other, secret = (
        salt_of(PipelineHead(name="other")),
        salt_of(PipelineHead(name="shop", salt="x")),
    )

    assert shop == shop_again
    assert len({shop, other, secret}) == 3


@pytest.mark.parametrize(
    ("mask", "kept"),
    [("hash", hashed("secret")), ("redact", "***"), ("null", None), ("truncate(2)", "se")],
)
def test_the_value_that_a_column_came_with_is_hidden_too(mask: str, kept: str | None) -> None:
    columns = [replace(each, missing="secret") if each.name == "ssn" else each
               for each in USERS.columns]  # fmt: skip
    came = replace(USERS, columns=tuple(columns))

    hidden = before_log(mask={"ssn": mask}).schema(came)

    assert hidden.column("ssn").missing == kept
