"""Good lines become rows whatever stands between them, and bad ones are named, never lost."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.connectors.files.file_reader import TextLines
from headwater.connectors.files.line_parser import layout_of, line_count_of, sift
from headwater.connectors.files.schema_inference import InferredSchema
from headwater.connectors.files.settings import FilesSettings
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableId
from tests.connectors.files.stepwise_reader import Reader

CANARY = "canary-7f3a"


def read(directory: Path, name: str, content: bytes, **chosen: Any) -> Reader:
    (directory / name).write_bytes(content)
    reader = Reader(directory, {"table": "t", **chosen})
    reader.read_all(is_last=True)
    return reader


def told(reader: Reader) -> list[tuple[str, str]]:
    return [(reject.at, reject.problem) for reject in reader.rejects()]


def types_of(reader: Reader) -> dict[str, str]:
    found: dict[str, str] = json.loads(reader.positions["table/t"])
    return found


def test_bad_lines_of_csv_are_named_and_the_others_are_rows(tmp_path: Path) -> None:
    good = [b"%d,name %d,%d.5\n" % (number, number, number) for number in range(1_000)]
    good[17] = b"17,too,many,values\n"
    good[400] = b"canary-7f3a,x,1\n"
    good[401] = b"401\n"
    good[999] = b"999,\xff\xfe,1\n"

    reader = read(tmp_path, "a.csv", b"id,name,total\n" + b"".join(good), key="id")

    assert told(reader) == [
        ("a.csv:19", "the line has 4 values, not 3"),
        ("a.csv:402", "column id is int64 and the text is no number"),
        ("a.csv:403", "the line has 1 values, not 3"),
        ("a.csv:1001", "column name is not utf-8: csv.encoding says what it is"),
    ]
    assert reader.rejects()[1].content == b"canary-7f3a,x,1"
    bad = {17, 400, 401, 999}
    assert [row["id"] for row in reader.rows()] == [n for n in range(1_000) if n not in bad]
    assert reader.places() == [f"a.csv#{n}" for n in range(1_000) if n not in bad]


def test_bad_lines_of_json_are_named_and_the_others_are_rows(tmp_path: Path) -> None:
    lines = [b'{"id":%d,"name":"n"}\n' % number for number in range(200)]
    lines[0] = b"null\n"
    lines[5] = b'{"id":"canary-7f3a","name":"n"}\n'
    lines[6] = b'{"id":6,"name":"n"}{"id":7}\n'
    lines[7] = b"[1,2]\n"
    lines[8] = b'{"id":8,\n'
    lines[9] = b'{"id":9,"name":"\xff"}\n'
    lines[10] = b'{"id":' * 30_000 + b"1" + b"}" * 30_000 + b"\n"
    lines[11] = b"null\n"
    lines[12] = b'{"name":"no key"}\n'
    lines[13] = b'{"id":13,"name":"n"} \r\n'

    reader = read(tmp_path, "a.jsonl", b"".join(lines), key="id")

    assert told(reader) == [
        ("a.jsonl:1", "the line is not an object"),
        ("a.jsonl:6", "field /id is int64 and the value is a text"),
        ("a.jsonl:7", "the line is not exactly one row"),
        ("a.jsonl:8", "the line is not an object"),
        ("a.jsonl:9", "the line is not JSON"),
        ("a.jsonl:10", "the line is not UTF-8"),
        ("a.jsonl:11", "the object is nested more than 60 deep"),
        ("a.jsonl:12", "the line is not an object"),
        ("a.jsonl:13", "a column of the key is null"),
    ]
    assert [row["id"] for row in reader.rows()] == [*range(1, 5), *range(13, 200)]


def test_problems_never_quote_what_the_lines_hold(tmp_path: Path) -> None:
    content = f'{{"id":1,"at":"x"}}\n{{"id":"{CANARY}"}}\n{{"id":2,"{CANARY}"}}\n{CANARY}\n'

    reader = read(tmp_path, "a.jsonl", content.encode())

    assert len(reader.rejects()) == 3
    assert not [reject for reject in reader.rejects() if CANARY in reject.problem]


def test_blank_lines_are_no_rows_but_are_counted(tmp_path: Path) -> None:
    csv = read(tmp_path, "a.csv", b"id,x\r\n1,a\r\n\r\n2,b\r\n")
    (tmp_path / "a.csv").unlink()

    jsonl = read(tmp_path, "b.jsonl", b'{"id":1}\n\n\r\n{"id":2}\n')

    assert csv.places() == ["a.csv#0", "a.csv#2"]
    assert jsonl.places() == ["b.jsonl#0", "b.jsonl#3"]
    assert not csv.rejects() + jsonl.rejects()


def test_types_are_inferred_once_and_nothing_loses_its_zeros(tmp_path: Path) -> None:
    content = (
        b"id,zip,total,day,at,ok,none,text\n"
        b"1,00123,1,2026-01-31,2026-01-31 10:00:00,true,,NA\n"
        b'2,12345,2.5,,,false,,""\n'
    )

    reader = read(tmp_path, "a.csv", content)

    assert types_of(reader) == {
        "id": "int64",
        "zip": "string",
        "total": "float64",
        "day": "date",
        "at": "timestamp(us)",
        "ok": "bool",
        "none": "string",
        "text": "string",
    }
    assert [(row["zip"], row["text"], row["day"]) for row in reader.rows()] == [
        ("00123", "NA", date(2026, 1, 31)),
        ("12345", "", None),
    ]


def test_columns_that_are_given_are_kept_to(tmp_path: Path) -> None:
    columns = {
        "id": "int32",
        "total": "decimal(10,2)",
        "at": "timestamptz(us)",
        "day": "date",
        "tags": "list<string>",
        "part": "float32",
    }
    content = (
        b'{"id":1,"total":12.30,"at":"2026-01-31T10:00:00Z","day":"2026-01-31","tags":["a"]}\n'
        b'{"id":2,"total":"0.10","more":[{}]}\n'
        b'{"id":3000000000}\n'
        b'{"id":4,"total":0.001}\n'
        b'{"id":5,"day":"soon"}\n'
        b'{"id":6,"part":1e39}\n'
    )

    reader = read(tmp_path, "a.jsonl", content, columns=columns)

    assert reader.rows() == [
        {
            "id": 1,
            "total": Decimal("12.30"),
            "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
            "day": date(2026, 1, 31),
            "tags": ["a"],
            "part": None,
        },
        {"id": 2, "total": Decimal("0.10"), "at": None, "day": None, "tags": None, "part": None},
    ]
    assert [at for at, _ in told(reader)] == [f"a.jsonl:{line}" for line in range(3, 7)]
    assert told(reader)[2][1] == "field /day is date and the text is no date"


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("decimal(10,2)", "canary", "no number"),
        ("decimal(10,2)", "1.239", "a number with more than 2 digits after the point"),
        ("decimal(10,2)", "123456789.01", "a number that is too large"),
        ("decimal(10,2)", "NaN", "not a number"),
        ("decimal(10,2)", "2026-01-31", "a date"),
        ("int32", "3000000000", "a number that is too large"),
        ("int32", "1.5", "a number with a fraction"),
        ("uint8", "-7", "a negative number"),
        ("bool", "perhaps", "another one"),
        ("date", "2026-02-30", "a date out of range"),
        ("timestamp(us)", "tomorrow", "no time"),
        ("float64", "canary", "no number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_column_type_and_class(
    tmp_path: Path, kind: str, text: str, why: str
) -> None:
    columns = {"id": "int64", "price": kind}

    of_csv = read(tmp_path, "a.csv", b"id,price\n1,\n2,%b\n" % text.encode(), columns=columns)
    (tmp_path / "json").mkdir()
    of_json = read(
        tmp_path / "json", "a.jsonl", b'{"id":2,"price":"%b"}\n' % text.encode(), columns=columns
    )

    assert told(of_csv) == [("a.csv:3", f"column price is {kind} and the text is {why}")]
    [(at, problem)] = told(of_json)
    assert at == "a.jsonl:1" and problem.startswith(f"field /price is {kind} and the ")
    assert text not in problem


def test_a_later_file_with_another_column_widens_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n")

    reader = read(tmp_path, "b.csv", b"total,id\n2.5,2\n")

    assert types_of(reader) == {"id": "int64", "name": "string", "total": "float64"}
    assert reader.rows() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": None, "total": 2.5},
    ]
    restarted = Reader(tmp_path, {"table": "t"}, positions=reader.positions)
    (tmp_path / "c.csv").write_bytes(b"id\n3\n")
    restarted.read()
    assert restarted.rows() == [{"id": 3, "name": None, "total": None}]


def test_a_new_column_is_left_out_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"id":1}\n')

    reader = read(tmp_path, "b.jsonl", b'{"id":2,"new":1}\n', new_columns="ignore")

    assert reader.rows() == [{"id": 1}, {"id": 2}]


def test_a_field_that_is_always_null_waits_for_its_first_value(tmp_path: Path) -> None:
    lines = [b'{"id":%d,"x":null}\n' % number for number in range(300)]

    reader = read(tmp_path, "a.jsonl", b"".join(lines) + b'{"id":300,"x":"now"}\n', batch="1KiB")

    assert types_of(reader) == {"id": "int64", "x": "string"}
    assert [row.get("x") for row in reader.rows()] == [None] * 300 + ["now"]
    assert not reader.rejects()


def test_enclosed_values_may_hold_line_ends_where_that_is_said(tmp_path: Path) -> None:
    content = b'id,note\n1,"two\nlines, ""quoted"""\n2,x\n' * 1 + b'3,"\n\n"\n4,y\n'

    reader = read(tmp_path, "a.csv", content, csv={"multiline": True})

    assert [row["note"] for row in reader.rows()] == ['two\nlines, "quoted"', "x", "\n\n", "y"]
    assert reader.places() == ["a.csv#0", "a.csv#1", "a.csv#2", "a.csv#3"]


def test_an_escaped_quote_encloses_no_line_ends(tmp_path: Path) -> None:
    content = b'id,note\n1,"a\\"b"\n2,"x\ny"\n3,"\\\\"\n4,z\n'

    reader = read(tmp_path, "a.csv", content, csv={"escape": "\\", "multiline": True})

    assert not reader.rejects()
    assert [row["note"] for row in reader.rows()] == ['a"b', "x\ny", "\\", "z"]
    assert reader.places() == [f"a.csv#{number}" for number in range(4)]


def test_a_stray_quote_spoils_one_line(tmp_path: Path) -> None:
    lines = [b"%d,plain\n" % number for number in range(100)]
    lines[10] = b'10,"never closed\n'
    lines[50] = b'50,"x" y"\n'

    reader = read(tmp_path, "a.csv", b"id,note\n" + b"".join(lines))

    kept = {row["id"] for row in reader.rows()}
    assert kept >= set(range(100)) - {10, 50}
    assert "a.csv:12" in [at for at, _ in told(reader)]


def test_a_line_that_is_too_long_is_set_aside_without_its_content(tmp_path: Path) -> None:
    content = b"short\n" + b"x" * 50_000 + b"\nlast\n"

    reader = read(tmp_path, "a.log", content, batch="1KiB", line_max="4KiB")

    assert reader.lines() == ["short", "last"]
    assert told(reader) == [("a.log:2", "the line is longer than 4096 bytes")]
    assert reader.places() == ["a.log#0", "a.log#2"]


def test_a_file_without_a_usable_header_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"id,x\n1,a\n")

    twice = read(tmp_path, "a.csv", b"id,id\n1,2\n", key="id")
    keyless = read(tmp_path, "a.csv", b"name\nx\n", key="id")

    assert told(twice) == [("a.csv:1", "the header has an empty name, or one twice")]
    assert told(keyless) == [("a.csv:1", "columns of the key are missing: id")]
    assert twice.rows() == keyless.rows() == [{"id": 1, "x": "a"}]


def test_a_mark_of_byte_order_belongs_to_no_name_and_no_value(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"id":2}\n')

    reader = read(tmp_path, "a.csv", b"\xef\xbb\xbfid\n1\n")

    assert reader.rows() == [{"id": 1}, {"id": 2}]


def test_a_parquet_file_keeps_its_types_and_rows_without_a_key_are_set_aside(
    tmp_path: Path,
) -> None:
    table = pa.table(
        {
            "id": pa.array([1, None, 3], pa.int32()),
            "total": pa.array([Decimal("1.50"), None, None], pa.decimal128(10, 2)),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "at": pa.array([0, 1, 2], pa.timestamp("ms", "Europe/Berlin")),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    reader = Reader(tmp_path, {"table": "t", "key": "id"})

    reader.read_all(is_last=True)

    assert types_of(reader) == {
        "id": "int32",
        "total": "decimal(10,2)",
        "kind": "string",
        "at": "timestamptz(us)",
    }
    assert [row["id"] for row in reader.rows()] == [1, 3]
    assert told(reader) == [("a.parquet#1", "a column of the key is null")]


def test_a_parquet_file_waits_until_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": [1, 2]}), file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    reader = Reader(tmp_path, {"table": "t"})
    reader.now_ms = file.stat().st_mtime_ns // 1_000_000

    early = reader.read()
    file.write_bytes(whole)
    reader.read()

    assert (early, [row["id"] for row in reader.rows()]) == (0, [1, 2])
    assert not reader.rejects()


def test_a_parquet_file_that_stays_broken_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(b"good\n")

    reader = read(tmp_path, "a.parquet", b"PAR1 nothing", table="{stem}")

    assert reader.lines() == ["good"]
    assert told(reader) == [("a.parquet#0", "the file is not a complete Parquet file")]


def test_events_say_which_file_and_row_they_are_from(tmp_path: Path) -> None:
    reader = read(tmp_path, "a.log", b"one\ntwo\n")

    (changes,) = reader.batches[0].tables
    modified_us = (tmp_path / "a.log").stat().st_mtime_ns // 1_000
    assert [*changes.source][:5] == ["version", "connector", "name", "ts_ms", "snapshot"]
    assert (changes.source["connector"], changes.source["name"]) == ("files", "shop")
    assert changes.source["ts_us"] == modified_us
    assert (changes.source["file"], changes.commits) == ("a.log", "a.log")
    assert isinstance(changes.source["row"], pa.Array)
    assert changes.source["row"].to_pylist() == [0, 1]
    assert set(reader.operations()) == {Operation.INSERT}


LINE = st.sampled_from(
    [b"1,a", b"2,b", b"x,1", b"1", b"", b"1,2,3", b'3,"q"', b'"4', b"5,\xff", b"\r"]
)


@pytest.mark.property
@given(st.lists(LINE, max_size=40), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_lines_one_by_one_say_what_is_good(lines: list[bytes], end: bytes, is_ended: bool) -> None:
    """The slow reference reads each line alone; a block has to give the same rows and numbers."""
    from headwater.connectors.files.csv_lines import CsvLines
    from headwater.connectors.files.settings import CsvSettings

    def shape() -> InferredSchema:
        types = {"id": pa.int64(), "note": pa.string()}
        return InferredSchema(TableId("", "t"), types, key=(), grows=False)

    parser = CsvLines(CsvSettings(), delimiter=",", header=b"id,note\n", key=())
    block = end.join(lines) + (end if lines and is_ended else b"")
    pieces = block.split(b"\n")
    expected, bad = [], []
    for number, line in enumerate(pieces[:-1] if block.endswith(b"\n") else pieces):
        if line.strip(b"\r"):
            found = sift(
                line, shape(), parser, line_count=1,
                layout=partial(layout_of, line, quote="", has_blank_rows=False),
            )  # fmt: skip
            expected += [(number, row) for row in found.rows.to_pylist()]
            bad += [number for _ in found.bad]

    if block.strip():
        sifted = sift(
            block, shape(), parser, line_count=line_count_of(block, ""),
            layout=partial(layout_of, block, quote="", has_blank_rows=False),
        )  # fmt: skip
        assert list(zip(sifted.numbers.tolist(), sifted.rows.to_pylist(), strict=True)) == expected
        assert [each.row for each in sifted.bad] == bad


def test_text_lines_are_what_splitting_gives() -> None:
    block = "a\r\n\nü\r\r\nlast".encode()

    rows = TextLines().parse(block, InferredSchema(TableId("", "t"), {}, key=(), grows=True))

    assert rows.column("line").to_pylist() == ["a", "", "ü\r", "last"]
    assert np.array_equal(layout_of(block, quote="", has_blank_rows=True).numbers, range(4))


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"csv": {"header": False}}, "is required without a header"),
        ({"columns": {"id": "int"}}, "a type is one of"),
        ({"columns": {"id": "int64"}, "key": "nope"}, "columns of the key are missing"),
        ({"csv": {"delimiter": "::"}}, "one ASCII character"),
        ({"csv": {"delimiter": '"'}}, "the same character"),
    ],
)
def test_settings_that_cannot_work_are_refused(chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FilesSettings.model_validate({"path": "x", **chosen})


def test_numbers_that_no_integer_holds_keep_their_digits(tmp_path: Path) -> None:
    content = b"id,share\n12345678901234567890,0.1\n12345678901234567891,0.30000000000000004\n"

    reader = read(tmp_path, "a.csv", content)

    assert types_of(reader) == {"id": "string", "share": "float64"}
    assert [row["id"] for row in reader.rows()] == ["12345678901234567890", "12345678901234567891"]


def test_whole_numbers_of_json_that_no_integer_holds_are_decimals(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"id":12345678901234567890,"in":[{"n":18446744073709551617},{"n":null}],"x":1.5}\n'
        b'{"id":-1,"in":null,"x":1e300}\n'
        b'{"id":99999999999999999999999999999999999999}\n'
    )
    later = b'{"id":0.5}\n{"id":123456789012345678901234567890123456789}\n'

    reader = read(tmp_path, "b.jsonl", later)

    assert types_of(reader) == {
        "id": "decimal(38,0)",
        "in": "list<struct<n:decimal(38,0)>>",
        "x": "float64",
    }
    assert [row["id"] for row in reader.rows()] == [12345678901234567890, -1, 10**38 - 1]
    assert reader.rows()[0]["in"] == [{"n": Decimal(18446744073709551617)}, {"n": None}]
    assert told(reader) == [
        ("b.jsonl:1", "field /id is decimal(38,0) and the value is a number with a fraction"),
        ("b.jsonl:2", "field /id is decimal(38,0) and the value is a number that is too large"),
    ]


def test_a_whole_number_of_which_a_float_would_lose_digits_is_named(tmp_path: Path) -> None:
    x = [b"0.5", b"9007199254740993", b"9007199254740992", b"1" + b"0" * 400]
    x += [b"123456789012345680000"]  # as JavaScript writes the float
    lines = [b'{"x":%s,"in":{"y":[0.5]},"note":"9007199254740993, 1"}\n' % each for each in x]
    lines += [b'{"x":1e18,"in":{"y":[1,-9007199254740993]}}\r\n']
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    beside = {"x": "float32", "n": "int64"}

    mixed = read(tmp_path, "a.jsonl", b"".join(lines))
    short = read(
        tmp_path, "a.jsonl", b'{"x":16777217,"n":16777217}\n{"x":16777218}\n', columns=beside
    )

    assert [row["x"] for row in mixed.rows()] == [0.5, 9007199254740992, 123456789012345680000.0]
    assert told(mixed) == [
        ("a.jsonl:2", "field /x holds a whole number of which float64 loses digits"),
        ("a.jsonl:4", "field /x holds a whole number of which float64 loses digits"),
        ("a.jsonl:6", "field /in/y holds a whole number of which float64 loses digits"),
    ]
    assert short.rows() == [{"x": 16777218, "n": None}]


def test_a_whole_number_that_a_later_line_of_csv_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,x\n1,0.5\n")
    later = b"id,x\n2,9007199254740993\n3, 9007199254740992\n4,1e18\n"

    reader = read(tmp_path, "b.csv", later)

    assert [row["id"] for row in reader.rows()] == [1, 3, 4]
    problem = "column x holds a whole number of which float64 loses digits"
    assert told(reader) == [("b.csv:2", problem)]


def test_a_parquet_file_of_other_columns_is_set_aside(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"other": [1, 2]}), tmp_path / "a.parquet")
    reader = Reader(tmp_path, {"table": "t", "columns": {"id": "int64"}})

    reader.read_all(is_last=True)

    assert told(reader) == [("a.parquet#0", "the file has none of the columns of the table")]


@pytest.mark.parametrize(
    ("values", "kind", "problem"),
    [
        (pa.array(["1", "secret"]), "int64", "int64 and the text is no number"),
        (pa.array([1.0, 1.5]), "int64", "int64 and the value is a number with a fraction"),
        (pa.array([1, 2**40]), "int32", "int32 and the value is a number that is too large"),
        (pa.array([[1]]), "int64", "int64 and the value is a list"),
        (pa.array([{"a": 1}]), "string", "string and the value is an object"),
        (
            pa.array([Decimal("1.234")]),
            "decimal(10,2)",
            "decimal(10,2) and the value is a number with more than 2 digits after the point",
        ),
    ],
)
def test_a_parquet_file_whose_values_do_not_fit_names_the_column_and_their_class(
    tmp_path: Path, values: pa.Array, kind: str, problem: str
) -> None:
    ids = pa.array(range(len(values)))
    parquet.write_table(pa.table({"id": ids, "x": values}), tmp_path / "a.parquet")
    reader = Reader(tmp_path, {"table": "t", "columns": {"id": "int64", "x": kind}})

    reader.read_all(is_last=True)

    assert told(reader) == [("a.parquet#0", f"column x is {problem}")]


@pytest.mark.parametrize("encoding", ["windows-1252", "iso-8859-15", "shift_jis"])
def test_csv_of_another_encoding_is_read_as_what_it_says(tmp_path: Path, encoding: str) -> None:
    word = {"shift_jis": "表,示\n"}.get(encoding, 'Größe, "ä"\n')
    quoted = '"' + word.replace('"', '""') + '"'
    text = f"id,größe\n1,{quoted}\n2,b\n".replace("größe", "b" if "表" in word else "größe")
    chosen = {"csv": {"encoding": encoding, "multiline": True}}

    reader = read(tmp_path, "a.csv", text.encode(encoding), **chosen)

    assert [tuple(row.values()) for row in reader.rows()] == [(1, word), (2, "b")]
    assert told(reader) == []


def test_a_column_that_is_not_utf8_is_said_and_never_becomes_bytes(tmp_path: Path) -> None:
    content = "id,name\n1,Müller\n2,Meier\n3,Größe\n".encode("iso-8859-1")

    reader = read(tmp_path, "a.csv", content)
    renamed = read(tmp_path, "a.csv", "id,größe\n1,2\n".encode("iso-8859-1"))

    problem = "column name is not utf-8: csv.encoding says what it is"
    assert told(reader) == [("a.csv:2", problem), ("a.csv:4", problem)]
    assert [row["name"] for row in reader.rows()] == ["Meier"]
    assert types_of(reader)["name"] == "string"
    assert told(renamed) == [
        ("a.csv:1", "the first line is not utf-8: csv.encoding says what it is")
    ]


def test_a_line_that_is_not_of_its_encoding_is_set_aside(tmp_path: Path) -> None:
    content = b"id,name\n1,\x81\x20\n2,b\n"

    reader = read(tmp_path, "a.csv", content, csv={"encoding": "shift_jis"})

    assert told(reader) == [("a.csv:2", "the line is not shift_jis: csv.encoding says what it is")]
    assert [row["name"] for row in reader.rows()] == ["b"]


@pytest.mark.parametrize("encoding", ["utf-16", "no-such", "base64", "iso2022_jp", ""])
def test_an_encoding_without_ascii_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match="contain ASCII"):
        FilesSettings.model_validate({"path": "a.csv", "csv": {"encoding": encoding}})


@pytest.mark.parametrize("batch_bytes", [1 << 10, 2 << 20])
def test_lines_are_counted_as_editors_do(tmp_path: Path, batch_bytes: int) -> None:
    values = [
        f"{n},x" if n % 7 == 0 else f'{n},"two\nlines of {n}"' if n % 3 else f"\n{n},y"
        for n in range(300)
    ]
    values[::50] = ["spoilt"] * 6
    text = "\n".join(["id,name", *values, ""])

    reader = read(
        tmp_path, "a.csv", text.encode(), csv={"multiline": True}, batch_bytes=batch_bytes
    )

    expected = [f"a.csv:{at}" for at, line in enumerate(text.split("\n"), 1) if line == "spoilt"]
    assert [at for at, _ in told(reader)] == expected
