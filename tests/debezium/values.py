"""Columns of every type and the values at which something changes, as tables of one history."""

from typing import NamedTuple

TEXTS = (
    "", "plain", "naïve café", "日本語 テキスト", "emoji 😀👩‍👩‍👧", "quote ' and \" and \\ back",
    "tab\tnl\ncr\rend", "null", "a\u2028b\u2029c\x1f\x7f", "combining é", " leading and trailing ",
    "\\N", "{}", "NULL", "__debezium_unavailable_value",
)  # fmt: skip


class Of(NamedTuple):
    """A column type and literals of it."""

    type: str
    values: tuple[str, ...]


TYPES = """
CREATE SCHEMA hw;
CREATE EXTENSION hstore SCHEMA hw;
CREATE EXTENSION citext SCHEMA hw;
CREATE EXTENSION ltree SCHEMA hw;
CREATE TYPE hw.mood AS ENUM ('sad', 'ok', 'happy ☺', 'it''s, "quoted"');
CREATE DOMAIN hw.posint AS int4 CHECK (VALUE > 0);
CREATE DOMAIN hw.posint2 AS hw.posint;
CREATE DOMAIN hw.price AS numeric(8,3);
CREATE DOMAIN hw.vc10 AS varchar(10);
CREATE DOMAIN hw.dts3 AS timestamp(3);
CREATE DOMAIN hw.anynum AS numeric;
CREATE TYPE hw.pair AS (a int4, b text);
"""

TABLES: dict[str, tuple[Of, ...]] = {
    "t_int": (
        Of("int2", ("-32768", "32767", "0", "-1")),
        Of("int4", ("-2147483648", "2147483647", "0")),
        Of("int8", ("-9223372036854775808", "9223372036854775807", "0", "9007199254740993")),
        Of("oid", ("0", "4294967295")),
    ),
    "t_num": (
        Of("numeric", (
            "0", "1", "-1", "0.0", "0.00", "1.10", "100", "127", "256", "-128", "-129", "1e-20",
            "-12345678901234567890.12345678901234567890123456789", "1e500",
        )),
        Of("numeric(5,2)", ("999.99", "-999.99", "0.005", "0", "1.5")),
        Of("numeric(38,10)", (
            "9999999999999999999999999999.9999999999",
            "-9999999999999999999999999999.9999999999", "0.0000000001",
        )),
        Of("numeric(60,20)", ("1e39", "-1e-20", "12345678901234567890.5")),
        Of("numeric(10,0)", ("9999999999", "-9999999999", "0")),
        Of("numeric(10)", ("7", "-7")),
        Of("numeric(200,100)", ("1e99", "-1e-100", "3.14")),
        Of("numeric(3,5)", ("0.00999", "-0.00001")),
        Of("money", (
            "0", "1.23", "-1.23", "92233720368547758.07", "-92233720368547758.08", "0.10", "1234",
        )),
    ),
    "t_num_special": (
        Of("numeric", ("NaN", "1.5", "Infinity", "-Infinity")),
        Of("numeric(10,2)", ("2.50", "NaN")),
        Of("numeric(3,5)", ("NaN",)),
        Of("numeric(5,-2)", ("12345", "-9999900", "49", "50")),
    ),
    "t_float": (
        Of("float4", (
            "0", "-0", "NaN", "Infinity", "-Infinity", "3.4028235e38", "1.17549435e-38",
            "16777217", "1e6", "1e-45", "0.1", "1e7", "0.001", "0.0001", "123456.79",
        )),
        Of("float8", (
            "0", "-0", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308",
            "2.2250738585072014e-308", "9007199254740993", "1e16", "0.001", "1e23", "5e-324",
            "1e7", "9999999.9", "0.1", "1.0E-4", "123456789.25", "2e-3",
        )),
    ),
    "t_bool": (Of("bool", ("true", "false")),),
    "t_text": (
        Of("text", TEXTS),
        Of("varchar", TEXTS),
        Of("varchar(20)", ("", "日本語", "  pad  ")),
        Of("char", ("a", "é", " ")),
        Of("char(10)", ("", "ab", "日本語", "ten chars!")),
        Of('"char"', ("a", "", "z")),
    ),
    "t_bytes": (
        Of("bytea", (
            r"\x", r"\x00", r"\xff", rf"\x{bytes(range(256)).hex()}", r"\xfbff3e3f", r"\x61",
            r"\x6162", r"\xdeadbeef",
        )),
    ),
    "t_date": (
        Of("date", (
            "1970-01-01", "1969-12-31", "2026-11-20", "0001-01-01", "9999-12-31", "1582-10-04",
            "1582-10-15", "2000-02-29", "10000-01-01", "5874897-12-31",
        )),
    ),
    "t_time": (
        Of("time", ("00:00:00", "23:59:59.999999", "12:34:56.123456", "12:34:56.1", "24:00:00")),
        Of("time(0)", ("23:59:59", "00:00:01", "24:00:00")),
        Of("time(3)", ("12:34:56.123", "23:59:59.9994")),
        Of("time(6)", ("12:34:56.000001",)),
        Of("timetz", (
            "00:00:00+00", "23:59:59.999999+00", "12:34:56.123456+05:30", "12:34:56-08",
            "01:00:00+14", "12:00:00.1+00", "12:00:30+02", "24:00:00+00", "00:00:00-15:59",
        )),
        Of("timetz(0)", ("12:34:56+02",)),
        Of("timetz(3)", ("12:34:56.123+02", "12:34:56.100+02")),
    ),
    "t_ts": (
        Of("timestamp", (
            "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2026-11-20 12:34:56.123456",
            "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2026-03-29 02:30:00",
            "1582-10-10 00:00:00", "2026-11-20 12:34:56.1",
        )),
        Of("timestamp(0)", ("2026-11-20 12:34:56",)),
        Of("timestamp(1)", ("2026-11-20 12:34:56.1",)),
        Of("timestamp(3)", ("2026-11-20 12:34:56.123", "1969-12-31 23:59:59.999")),
        Of("timestamp(4)", ("2026-11-20 12:34:56.1234",)),
        Of("timestamp(6)", ("2026-11-20 12:34:56.123456",)),
        Of("timestamptz", (
            "1970-01-01 00:00:00+00", "2026-11-20 12:34:56.123456+05:30",
            "2026-11-20 12:34:56.1+00", "2026-11-20 12:34:56+00", "2026-11-20 12:34:00+00",
            "2026-11-20 12:34:56.120000+00", "2026-11-20 12:34:56.000001+00",
        )),
        Of("timestamptz(0)", ("2026-11-20 12:34:56+00",)),
        Of("timestamptz(1)", ("2026-11-20 12:34:56.1+00", "2026-11-20 12:34:56+00")),
        Of("timestamptz(3)", (
            "2026-11-20 12:34:56.123+00", "2026-11-20 12:34:56.1+00", "2026-11-20 12:34:56+00",
        )),
        Of("timestamptz(5)", ("2026-11-20 12:34:56.12345+00", "2026-11-20 12:34:56+00")),
    ),
    "t_far": (
        Of("timestamp", (
            "0044-03-15 12:00:00 BC", "10000-01-01 00:00:00", "20000-02-03 04:05:06.789",
            "4713-01-01 00:00:00 BC", "294246-01-01 00:00:00", "infinity", "-infinity",
        )),
        Of("timestamp(3)", (
            "0044-03-15 12:00:00 BC", "294246-12-31 23:59:59.999", "infinity", "-infinity",
        )),
        Of("timestamptz", (
            "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00", "20000-02-03 04:05:06.789+00",
            "294246-12-31 23:59:59.999999+00", "infinity", "-infinity",
        )),
        Of("timestamptz(0)", ("0044-03-15 12:00:00+00 BC", "infinity", "-infinity")),
    ),
    "t_far_date": (
        Of("date", ("0044-03-15 BC", "4713-01-01 BC", "infinity", "-infinity")),
    ),
    "t_interval": (
        Of("interval", (
            "0", "1 second", "-1 second", "1 year 2 months 3 days 04:05:06.789012", "1 month",
            "-1 year", "1 year -1 day", "100:00:00", "1 mon -1 day", "-0.5 seconds",
            "-00:00:00.000001", "1 day -00:00:01.5", "-2 days 03:00:00", "14 months", "1000 years",
        )),
        Of("interval year to month", ("2 years 5 months",)),
        Of("interval day to second(3)", ("3 days 04:05:06.789",)),
    ),
    "t_uuid": (
        Of("uuid", (
            "00000000-0000-0000-0000-000000000000", "FFFFFFFF-ffff-ffff-ffff-ffffffffffff",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        )),
    ),
    "t_json": (
        Of("json", ("{}", "[]", "null", "1", "1.0", '"s"', '{"b": 1,  "a":2, "b":3}',
                    ' { "spaced" : [ 1 , 2 ] } ', '{"a":\n1}')),
        Of("jsonb", ("{}", "[]", "null", "1", "1.0", "1.00", '"s"',
                     r'{"u":"\u00e9\ud83d\ude00","aa":1}')),
        Of("xml", ("<a/>", '<a b="1">text &amp; é</a>', "text only",
                   '<?xml version="1.0"?><r><![CDATA[<x>]]></r>')),
    ),
    "t_net": (
        Of("inet", ("0.0.0.0", "255.255.255.255", "192.168.1.5/24", "::1", "2001:db8::/32",
                    "::ffff:1.2.3.4")),
        Of("cidr", ("10.0.0.0/8", "192.168.1.1/32", "2001:db8::/32", "10")),
        Of("macaddr", ("08:00:2b:01:02:03", "08-00-2B-01-02-03")),
        Of("macaddr8", ("08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03")),
    ),
    "t_bit": (
        Of("bit", ("0", "1")),
        Of("bit(8)", ("00000000", "10000001", "11111111")),
        Of("bit(12)", ("000000000001", "100000000000", "111111111111")),
        Of("bit(64)", ("1" * 64, "0" * 63 + "1", "1" + "0" * 63)),
        Of("bit(70)", ("1" + "0" * 69,)),
        Of("varbit", ("", "1", "0", "101", "111111111", "00000000")),
        Of("varbit(5)", ("", "10101", "01")),
        Of("varbit(1)", ("1", "0")),
    ),
    "t_enum": (
        Of("hw.mood", ("sad", "ok", "happy ☺", "it's, \"quoted\"")),
        Of("hw.mood[]", ("{sad,ok}", "{}", "{\"it's, \\\"quoted\\\"\"}")),
        Of("hw.posint", ("1", "2147483647")),
        Of("hw.price", ("1.5", "99999.999")),
        Of("hw.vc10", ("", "abc")),
        Of("hw.posint2", ("5",)),
        Of("hw.dts3", ("2026-11-20 01:02:03.456",)),
        Of("hw.anynum", ("1.50",)),
    ),
    "t_arr": (
        Of("int2[]", ("{}", "{-32768,NULL,32767}")),
        Of("int4[]", ("{}", "{1,NULL,-2147483648}", "[0:2]={7,8,9}")),
        Of("int8[]", ("{9223372036854775807,NULL}",)),
        Of("text[]", ("{}", "{NULL}",
                      r'{"",a,"NULL","q\"x","b\\s","c,d","{e}"," f ","日本"}', "{plain,words}")),
        Of("varchar(5)[]", ("{ab,NULL}",)),
        Of("char(3)[]", ("{a,bcd}",)),
        Of("bool[]", ("{t,f,NULL}",)),
        Of("numeric[]", ("{1,1.50,NULL,-1e20}",)),
        Of("numeric(6,2)[]", ("{1,1.5,NULL,9999.99}",)),
        Of("float4[]", ("{0.1,NULL,NaN,Infinity}",)),
        Of("float8[]", ("{0.1,NULL,NaN,-Infinity,1e300}",)),
        Of("date[]", ("{2026-11-20,NULL,1969-12-31}",)),
        Of("timestamp[]", ("{2026-11-20 12:34:56.123456,NULL}",)),
        Of("timestamp(3)[]", ("{2026-11-20 12:34:56.123,NULL}",)),
        Of("timestamptz[]", ("{2026-11-20 12:34:56.123456+02,NULL}",)),
        Of("timestamptz(3)[]", ("{2026-11-20 12:34:56.123+02,NULL}",)),
        Of("uuid[]", ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}",)),
        Of("bytea[]", (r'{"\\x00ff",NULL,"\\x"}',)),
        Of("jsonb[]", (r'{"{\"a\": 1}",NULL,"null"}',)),
        Of("json[]", ('{"{}"}',)),
        Of("inet[]", ("{10.0.0.1,NULL}",)),
        Of("cidr[]", ("{10.0.0.0/8}",)),
        Of("macaddr[]", ("{08:00:2b:01:02:03}",)),
        Of("oid[]", ("{1,NULL}",)),
        Of("timetz[]", ("{12:34:56+02,NULL}",)),
        Of("int4range[]", ('{"[1,5)"}',)),
    ),
    "t_arr_odd": (
        Of("time[]", ("{12:34:56.123456,NULL}",)),
        Of("time(3)[]", ("{12:34:56.123,NULL}",)),
        Of("bit(4)[]", ("{1010,0001}",)),
        Of("money[]", ("{1.23,NULL}",)),
        Of("interval[]", ("{1 day,NULL}",)),
        Of("point[]", ('{"(1,2)"}',)),
        Of("int4[][]", ("{{1,2},{3,4}}", "{}")),
        Of("hw.mood[]", ('{NULL,"happy ☺"}',)),
        Of("hw.citext[]", ("{Ab,NULL}",)),
        Of("hw.price[]", ("{1.5,NULL}",)),
        Of("xml[]", ("{<a/>}",)),
        Of("macaddr8[]", ("{08:00:2b:01:02:03:04:05}",)),
        Of("name[]", ("{ab}",)),
    ),
    "t_range": (
        Of("int4range", ("empty", "[1,5)", "[1,5]", "(,)", "[1,)", "(,5]")),
        Of("int8range", ("[1,9223372036854775806]",)),
        Of("numrange", ("[1.5,2.50]", "(1,2)", "[NaN,NaN]")),
        Of("daterange", ("[2026-01-01,2026-12-31]", "[2026-01-01,infinity)")),
        Of("tsrange", ('["2026-01-01 00:00:00","2026-01-02 00:00:00.5")',)),
        Of("tstzrange", ('["2026-01-01 00:00:00+02",)',)),
    ),
    "t_geo": (
        Of("point", ("(0,0)", "(1.5,-2.25)", "(1e300,-1e-300)")),
    ),
    "t_fts": (
        Of("tsvector", ("", "a b c", "'quick':2A 'brown':3 'it''s':1", "simple")),
    ),
    "t_hstore": (
        Of("hw.hstore", ("", "a=>1", r'"k e"=>"v\"q", b=>NULL, "é"=>"日本"', "a=>NULL")),
    ),
    "t_ext": (
        Of("hw.ltree", ("", "Top", "Top.Science.Astronomy")),
        Of("hw.citext", ("", "MiXed É")),
    ),
    "t_unknown": (
        Of("int4multirange", ("{}", "{[1,3),[5,8)}")),
        Of("line", ("{1,2,3}",)),
        Of("lseg", ("[(0,0),(1,1)]",)),
        Of("box", ("(1,1),(0,0)",)),
        Of("path", ("[(0,0),(1,1)]", "((0,0),(1,1),(2,0))")),
        Of("polygon", ("((0,0),(1,1),(2,0))",)),
        Of("circle", ("<(1,2),3>",)),
        Of("tsquery", ("a & b",)),
        Of("pg_lsn", ("0/0", "16/B374D848")),
        Of("xid", ("123",)),
        Of("tid", ("(0,1)",)),
        Of("regclass", ("pg_class",)),
        Of("jsonpath", ("$.a",)),
        Of("hw.pair", ("(1,x)",)),
        Of("pg_snapshot", ("10:20:10,14",)),
    ),
}  # fmt: skip


def create_tables() -> str:
    made = [TYPES]
    for table, columns in TABLES.items():
        fields = ", ".join(f"c{place} {column.type}" for place, column in enumerate(columns))
        made.append(f"CREATE TABLE {table} (id int4 PRIMARY KEY, {fields});")
    return "\n".join(made)


def insert_rows(*, first_id: int) -> list[str]:
    """Row by row the values of each column, null where it has no more."""
    statements = []
    for table, columns in TABLES.items():
        for row in range(max(len(column.values) for column in columns)):
            values = [
                quoted(column.values[row]) if row < len(column.values) else "NULL"
                for column in columns
            ]
            statements.append(f"INSERT INTO {table} VALUES ({first_id + row}, {', '.join(values)})")
    return statements


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
