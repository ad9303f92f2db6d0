"""What the server sends as it holds it says the same as its text."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.copy import Copier, CopyStop, decode_tuples
from headwater.connectors.postgres.types.builtin import builtin_reading
from headwater.connectors.postgres.types.copy_formats import NUMBERS, OTHERS
from headwater.connectors.postgres.wal.kernels import kernels_of
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.speed import Speed
from headwater.core_log.rows.rejects import UNFIT
from tests.databases import Guest

MANY = 300
NO_MODIFIER = -1

VALUES: dict[str, Sequence[str]] = {
    "int2": ("0", "-1", "32767", "-32768"),
    "int4": ("0", "-1", "2147483647", "-2147483648"),
    "int8": ("0", "-1", "9223372036854775807", "-9223372036854775808"),
    "oid": ("0", "1", "4294967295"),
    "float4": ("0", "-0", "1.1", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38"),
    "float8": ("0", "-0", "0.1", "NaN", "Infinity", "-Infinity", "5e-324", "1.79769313486231e308"),
    "bool": ("t", "f"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "bytea": ("", r"\x00", r"\x5a00000005495c", r"\x" + "ab" * 1000),
    "date": (
        "1970-01-01", "2000-01-01", "0001-01-01", "0001-12-31 BC", "4714-11-24 BC", "5874897-12-31",
        "10000-01-01", "infinity", "-infinity", "1600-02-29", "1999-12-31",
    ),
    "timestamp": (
        "1970-01-01 00:00:00", "1999-12-31 23:59:59.999999", "0001-12-31 23:59:59.1 BC",
        "4714-11-24 00:00:00 BC", "294247-01-10 04:00:54.775807", "10000-01-01 00:00:00.5",
        "infinity", "-infinity", "1969-12-31 23:59:59.000001", "9999-12-31 23:59:59",
    ),
}  # fmt: skip
VALUES["timestamptz"] = [
    each if "inf" in each else f"{each.removesuffix(' BC')}+00{' BC' * each.endswith('BC')}"
    for each in VALUES["timestamp"]
]
MADE = {
    "int8": "(random() * 1e18)::int8 - 5e17::int8",
    "float8": "(random() - 0.5) * 10 ^ (random() * 600 - 300)::int4",
    "float4": "((random() - 0.5) * 10 ^ (random() * 70 - 35)::int4)::float4",
    "uuid": "gen_random_uuid()",
    "date": "'4000-01-01 BC'::date + (random() * 5000000)::int4",
    "timestamp": "'4000-01-01 BC'::timestamp + random() * interval '13000 years'",
    "timestamptz": "'4000-01-01 BC'::timestamptz + random() * interval '13000 years'",
}


@pytest.mark.parametrize("speed", ["python", "fast"])
@pytest.mark.parametrize("name", sorted(VALUES))
async def test_text_and_binary_are_read_as_the_same_value(
    guest: Guest, name: str, speed: Speed
) -> None:
    reading = builtin_reading(name, NO_MODIFIER)
    assert reading is not None and reading.form is not None
    given = ", ".join(f"('{each}'::{name})" for each in VALUES[name])
    made = MADE.get(name, f"(VALUES {given} LIMIT 1)")
    guest.execute(
        f"CREATE TABLE t AS SELECT v FROM (VALUES {given}, (NULL)) t (v)"
        f" UNION ALL SELECT {made} FROM generate_series(1, {MANY})"
    )

    sent, text = await columns(guest, "SELECT v, v::text FROM t", speed)

    typed = reading.form.read(sent)
    assert typed.type == reading.type
    as_text = pa.array(["tf"[each == "false"] if each else None for each in text.to_pylist()])
    shown = as_text if name == "bool" else text
    assert same(typed, reading.read(shown))
    if name not in ("float4", "float8"):  # the same number in other words
        assert reading.form.text(sent).equals(shown)
    assert same(reading.read(reading.form.text(sent)), typed)
    assert same(reading.form.read(sent.slice(1, 3)), typed.slice(1, 3))
    assert len(reading.form.read(sent.slice(0, 0))) == len(reading.form.text(sent.slice(0, 0))) == 0


async def columns(guest: Guest, query: str, speed: Speed) -> tuple[pa.Array, pa.Array]:
    settings = PostgresSettings.model_validate({"url": guest.url, "tables": ["*"]})
    connection = await connect(settings)
    copier = Copier(connection, kernels_of(speed, few_rows=0))
    try:
        statement = f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()
        [piece] = copier.copy_blocks(statement, CopyStop())
        sent, text = decode_tuples(piece, [False, True], copier.kernels).columns
        return sent, text
    finally:
        copier.close()
        await connection.close()


def same(one: pa.Array, other: pa.Array) -> bool:
    """A number that is none is the same as another."""
    if pa.types.is_floating(one.type):
        return [repr(each) for each in one.to_pylist()] == [
            repr(each) for each in other.to_pylist()
        ]
    found: bool = one.equals(other)
    return found


def test_every_form_is_held_to_the_server() -> None:
    assert VALUES.keys() == {*NUMBERS, *OTHERS, "timestamp", "timestamptz"}


@pytest.mark.parametrize("digits", [0, 3])
def test_moments_of_few_digits_are_kept_in_milliseconds(digits: int) -> None:
    reading = builtin_reading("timestamp", digits)
    assert reading is not None and reading.form is not None
    sent = pa.array([(-1_000).to_bytes(8, "big", signed=True), b"\x7f" + b"\xff" * 7])

    found = reading.form.read(sent)

    assert found.type == reading.type == pa.timestamp("ms")
    assert found.equals(reading.read(pa.array(["1999-12-31 23:59:59.999", "infinity"])))


def test_a_moment_beyond_all_of_ours_does_not_fit() -> None:
    reading = builtin_reading("timestamptz", NO_MODIFIER)
    assert reading is not None and reading.form is not None
    last = 9_223_372_036_854_775_807 - 946_684_800_000_000

    fits = reading.form.read(pa.array([last.to_bytes(8, "big")]))
    with pytest.raises(UNFIT):
        reading.form.read(pa.array([(last + 1).to_bytes(8, "big")]))

    assert fits.view(pa.int64()).to_pylist() == [2**63 - 1]


def test_a_value_of_another_size_is_refused() -> None:
    reading = builtin_reading("int4", NO_MODIFIER)
    assert reading is not None and reading.form is not None

    for values in ([b"\0\0\0"], [b"\0\0\0\0\0", b"\0\0\0"], [None, b"\0"]):
        with pytest.raises(DecodeError):
            reading.form.read(pa.array(values, pa.binary()))
