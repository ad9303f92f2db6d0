"""A pipeline file is held against its settings whole: all mistakes at once, each with its place."""

from pathlib import Path

import pytest

from headwater.config.mistakes import MistakesFound
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import check, load
from tests.pipelines.pipeline_files import PLACEHOLDERS, SMALLEST, Write, mistakes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", ["pipeline.yaml:2:1: did not find expected node content"]),
        ("- a", ["pipeline.yaml:1:1: a pipeline file is made of keys and values"]),
        (
            "pipelin: shop\nsorce: {}\nsink: {type: made-up, path: x}\n",
            [
                "pipeline.yaml:1:1: key 'pipelin' is unknown - did you mean 'pipeline'?",
                "pipeline.yaml:1:1: the key 'pipeline' is missing",
                "pipeline.yaml:1:1: the key 'source' is missing - headwater init",
                "pipeline.yaml:2:1: key 'sorce' is unknown - did you mean 'source'?",
            ],
        ),
        (
            "pipeline: shop\nsource: generator\nsink: []\n",
            [
                "pipeline.yaml:2:9: should be keys with values - write `type:` below `source:`",
            ],
        ),
        (
            "pipeline: shop\nsource: [{type: made-up}]\nsink: [x, [y]]\n",
            [
                "pipeline.yaml:2:9: should be keys with values - write `type:` below `source:`",
                "pipeline.yaml:3:8: should be keys with values - write `type:` below `sink:`",
                "pipeline.yaml:3:11: should be keys with values - write `type:` below `sink:`",
            ],
        ),
        (
            "pipeline: shop\nsource: {url: x}\nsink: {type: made-upp}\n",
            [
                "pipeline.yaml:2:9: the key 'type' is missing in 'source' - headwater explain",
                "pipeline.yaml:3:14: type 'made-upp' is unknown - did you mean 'made-up'?",
            ],
        ),
    ],
)
def test_a_document_that_is_no_pipeline_is_a_mistake(
    write: Write, text: str, told: list[str]
) -> None:
    assert mistakes(write(text)) == told


@pytest.mark.parametrize(
    "log",
    ["{}", "{cleanup: delete, retention: {time: 7d}}", "{cleanup: 'compact,delete'}"],
)
def test_placeholders_are_only_for_topics_that_keep_everything(write: Write, log: str) -> None:
    (mistake,) = mistakes(write(PLACEHOLDERS.format(log=log)))

    assert "with placeholders, only all records of a key together hold its row" in mistake


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("log: {histroy: 7d}", "1:7: key 'histroy' is unknown - did you mean 'history'?"),
        ("log: {history_ms: 5}", "1:7: key 'history_ms' is unknown - did you mean 'history'?"),
        ("log: {history: 7}", "1:16: a duration has a unit - write it as 5ms, 10s or 7d"),
        ("log: {retention: {time: 7}}", "1:25: a duration has a unit"),
        ("log: {retention: {size: 7}}", "1:25: a size has a unit - write it as 64KiB or 8MiB"),
        ("log: {history: soon}", "1:16: a duration is a number and a unit, such as"),
        ("log: {value: debezium}", "1:14: should be 'debezium-json', 'flat-json'"),
        ("log: {partitions: 0}", "1:19: should be 'auto' or at least 1"),
        ("log: {partitions: many}", "1:19: should be 'auto' or a whole number"),
        ("log: {partitions: true}", "1:19: should be a number"),
        ("log: {history: true}", "1:16: should be a number"),
        ("log: {schemas: maybe}", "1:16: should be true or false"),
        ("log: {topic: '{tabel}'}", "1:14: a topic is made of {pipeline}, {schema} and {table}"),
        ("log: {path: }", "1:13: the key has no value - give it one, or take the key out"),
        ("log: {type: kafka}", "1:1: a Kafka cluster needs an address - bootstrap: HOST:PORT"),
        ("log: {bootstrap: h:1}", "1:18: the embedded log has no bootstrap"),
        ("log: {type: kafka, bootstrap: h:1, cluster: {}}", "1:45: the log is a Kafka cluster's"),
        ("log: {cluster: {}, fsync: never}", "1:27: a cluster keeps what it promises on its disks"),
        ("log: {value: flat-avro}", "1:14: Avro needs a schema registry"),
        ("log: {listen: here}", "1:15: should match"),
        ("log: []", "1:6: should be keys with values"),
        ("workers: some", "1:10: should be 'auto' or a whole number"),
        ("workers: -1", "1:10: should be 'auto' or at least 0"),
        ("workers: true", "1:10: should be a number"),
        ("transform: {table: a}", "1:12: should be a list"),
        ("transform: [{filter: no}]", "1:13: the key 'table' is missing"),
        ("transform: [{table: '/(/'}]", "1:21: the regular expression is invalid: missing )"),
        ("transform: [{table: a, mask: {b: hsh}}]", "1:34: the mask is not redact, hash, null or"),
        ("transform: [{table: a, mask: {b: hash}, drop: b}]", "1:47: 'b' is masked as well"),
        ("transform: [{table: a, python: os.system}]", "1:32: should match"),
        ("route: [{from: 'a*', to: b.$2}]", "1:16: the pattern has no group 2 - the pattern has 1"),
        ("errors: {retry: {backoff: 1m..1s}}", "1:27: the first pause is longer than the"),
        ("log: {listen: '0.0.0.0:9092'}", "1:15: the log of a pipeline listens beyond loopback"),
        (
            "log: {listen: '10.0.0.1:9092', cluster: {}}",
            "1:32: brokers know each other by a secret",
        ),
        (
            "log: {listen: '10.0.0.1:9092', cluster: {secret: s, security: {}}}",
            "1:63: the log does not listen beyond loopback without authentication",
        ),
        (
            "log: {cluster: {security: {sasl: SCRAM-SHA-512}}}",
            "1:7: brokers know each other by a secret beyond loopback or with authentication",
        ),
        (
            "log: {cluster: {secret: 0123456789abcdefghijklmnopqrstuvwxyz-_0123A}}",
            "1:25: the secret is the path of a file, not its content",
        ),
        ("log: {security: {protocol: SSL}}", "1:17: the key says how a Kafka cluster is reached"),
        ("log: {listen: '127.0.0.1:99999'}", "1:15: listen address is not HOST:PORT"),
        ("verify: {every: 1h, cron: 0 3 * * *}", "1:9: a time is given by either `every` or"),
        ("verify: {}", "1:9: a time is given by either `every` or"),
        ("tests: [{name: a, given: [], expect: {}}]", "1:26: should have at least 1 of them"),
        ("tests: [{name: a, given: [5], expect: {}}]", "1:27: should be keys with values"),
        ("limits: {slice_size: 5}", "1:22: a size has a unit"),
    ],
)
def test_a_mistake_is_told_where_it_stands(write: Write, line: str, told: str) -> None:
    (mistake,) = mistakes(write(f"{line}\n{SMALLEST}"))

    assert mistake.startswith(f"pipeline.yaml:{told}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tabels: a", "5:3: key 'tabels' is unknown - did you mean 'tables'?"),
        ("snapshot: {mod: never}", "5:14: key 'mod' is unknown - did you mean 'mode'?"),
        ("snapshot: {mode: nevr}", "5:20: should be 'initial' or 'never' - did you mean 'never'?"),
        ("slot: {max_retained: 5}", "5:24: a size has a unit"),
        ("slot: {name: Shop!}", "5:16: should match ^[a-z0-9_]{0,63}$"),
        ("batch_wait: 5", "5:15: a duration has a unit"),
        ("batch_weit: 5ms", "5:3: key 'batch_weit' is unknown - did you mean 'batch_wait'?"),
        ("tables: 5", "5:11: should be text - put it between quotes"),
        ("keys: {public.t: [1]}", "5:21: should be text - put it between quotes"),
        ("slot.nam: x", "5:3: key 'slot.nam' is unknown"),
        ("tombstones.on.delete: true", "5:3: the key 'tombstones.on.delete' has another place"),
        (
            "time.precision.mode: connect",
            "5:3: the option 'time.precision.mode' is not supported by this type",
        ),
    ],
)
def test_a_component_s_settings_are_told_like_all_others(
    write: Write, line: str, told: str
) -> None:
    text = SMALLEST.replace("sink:", f"  {line}\nsink:")

    (mistake,) = mistakes(write(text))

    assert mistake.startswith(f"pipeline.yaml:{told}")


def test_all_mistakes_of_all_files_are_told_at_once(write: Write) -> None:
    write("log: {partitions: 0}\nworkers: some\n" + SMALLEST, "a.yaml")
    write("nonsense: 1\n" + SMALLEST.replace("url", "ulr"), "b.yml")
    directory = write("]", "c.yaml").parent

    with pytest.raises(MistakesFound) as found:
        load(directory, environment={})

    assert [
        (each.path.name, each.text_position and each.text_position.line)
        for each in found.value.mistakes
    ] == [
        ("a.yaml", 1),
        ("a.yaml", 2),
        ("b.yml", 1),
        ("b.yml", 3),
        ("b.yml", 5),
        ("c.yaml", 1),
    ]
    assert str(found.value).startswith("6 mistakes\n")


def test_a_key_in_both_spellings_is_a_mistake(write: Write) -> None:
    lines = "  slot: {name: a}\n  slot.name: b\nsink:"

    (mistake,) = mistakes(write(SMALLEST.replace("sink:", lines)))

    assert mistake.startswith("pipeline.yaml:6:3: the option and 'name' say the same")


def test_two_sinks_cannot_have_one_name(write: Write) -> None:
    listed = "sink:\n" + "  - {type: made-up, path: a, name: b}\n" * 2

    told = mistakes(write(SMALLEST.replace("sink:\n  type: made-up\n  path: ./lake\n", listed)))

    assert told == ["pipeline.yaml:7:36: the name 'b' is taken - choose another one"]


def test_a_name_is_for_one_pipeline_and_a_directory_for_one_log(write: Write) -> None:
    write(SMALLEST, "a.yaml")
    directory = write(SMALLEST + "log: {path: elsewhere}", "b.yaml").parent

    with pytest.raises(MistakesFound) as found:
        load(directory, environment={})

    assert [each.problem for each in found.value.mistakes] == [
        "the pipeline 'shop' is in a.yaml as well",
        "the log is another one than that of a.yaml",
    ]


def test_pipelines_that_may_meet_in_one_topic_are_remarked_upon(write: Write) -> None:
    write(SMALLEST + "log: {topic: '{schema}.{table}'}", "a.yaml")
    text = SMALLEST.replace("shop", "crm", 1) + "log: {topic: '{schema}.{table}'}"
    directory = write(text, "b.yaml").parent

    found = check(directory, environment={})

    assert [each.problem for each in found.remarks] == ["the topics are named like those of a.yaml"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("transform: [{table: a, mask: {b: hash}}]", "a hash without a salt"),
        ("log: {retention: {time: 30d}}", "retention does nothing"),
    ],
)
def test_a_value_that_is_seldom_meant_is_remarked_upon(
    write: Write, line: str, problem: str
) -> None:
    (remark,) = check(write(f"{SMALLEST}{line}"), environment={}).remarks

    assert remark.problem.startswith(problem)
    assert remark.text_position is not None and remark.text_position.line == 8


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ("postgres", "postgres//x"),
        ("postgres", "mysql://u:canary@h/x"),
        ("postgres", "jdbc:postgresql://h/x?password=canary"),
        ("postgres", "canary"),
        ("sql", "postgres//x"),
        ("sql", "jdbc:mysql://h/x?password=canary"),
        ("sql", "h:5432/canary"),
        ("sink", "//u:canary@h/x"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(write: Write, part: str, url: str) -> None:
    kind, tables = ("sql", "") if part == "sink" else (part, ", tables: [a]")
    given = f"{{type: {kind}, url: '{url}'{tables}}}"
    text = f"pipeline: shop\nsource: {given}\nsink: {{type: console}}\n"
    if part == "sink":
        text = f"pipeline: shop\nsource: {{type: generator}}\nsink: {given}\n"

    with pytest.raises(MistakesFound) as found:
        check(write(text), environment={})

    (mistake,) = found.value.mistakes
    assert "address" in mistake.problem and "canary" not in str(found.value)
    assert mistake.text_position is not None and mistake.text_position.line == (
        3 if part == "sink" else 2
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgres://h/x", "postgresql://u:p@h:5432/x", "host=/tmp dbname=x", "service = shop",
    ],
)  # fmt: skip
def test_an_address_of_libpq_is_taken_as_it_is(write: Write, url: str) -> None:
    given = f"{{type: postgres, url: '{url}', tables: [a]}}"

    assert check(
        write(f"pipeline: shop\nsource: {given}\nsink: {{type: console}}\n"), environment={}
    ).pipelines


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("shop_module:clean", ""),
        ("shop_module:claen", "the python transform cannot be imported: AttributeError"),
        ("no_such_module:clean", "the python transform cannot be imported: ModuleNotFoundError"),
        ("shop_module:NUMBER", "the python transform is not a function"),
    ],
)
def test_a_function_that_is_not_there_is_found_before_a_run(
    write: Write, function: str, problem: str
) -> None:
    file = write(f"{SMALLEST}transform: [{{table: a, python: '{function}'}}]\n")
    (file.parent / "shop_module.py").write_text("NUMBER = 1\ndef clean(rows): return rows\n")
    found: list[str] = []

    try:
        check(file, environment={}, reads_expressions=True)
    except MistakesFound as error:
        found = [each.problem for each in error.mistakes]

    assert len(found) == bool(problem)
    assert "".join(found).startswith(problem)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("log: {{type: kafka, bootstrap: '{}'}}", "canary"),
        ("log: {{type: kafka, bootstrap: [a:1, '{}']}}", "canary:"),
        ("log: {{type: kafka, bootstrap: '{}'}}", "canary:99999"),
        ("log: {{type: kafka, bootstrap: '{}'}}", "http://canary:9092"),
        ("log: {{type: kafka, bootstrap: '{}'}}", "a:9092,canary"),
        ("log: {{value: flat-avro, registry: '{}'}}", "canary:8081"),
        ("log: {{value: flat-avro, registry: '{}'}}", "htp://u:canary@h"),
        ("log: {{value: flat-avro, registry: '{}'}}", "http:/canary"),
        ("log: {{value: flat-avro, registry: '{}'}}", "http://canary:port"),
        ("source: {{type: kafka, topics: [a], bootstrap: '{}'}}", "canary:x"),
        ("source: {{type: files, path: s3://a, s3: {{endpoint: '{}'}}}}", "canary:9000"),
        ("source: {{type: files, path: s3://a, s3: {{endpoint: '{}'}}}}", "https://"),
        ("sink: {{type: kafka, bootstrap: '{}'}}", ":9092/canary"),
        ("sink: {{type: kafka, bootstrap: [a:1], registry: '{}'}}", "canary"),
        ("sink: {{type: files, path: s3://a, s3: {{endpoint: '{}'}}}}", "canary"),
    ],
)
def test_an_address_of_a_server_that_cannot_be_right_is_refused(
    write: Write, given: str, address: str
) -> None:
    parts = {"source": "{type: generator}", "sink": "{type: console}"}
    parts.pop(given.partition(":")[0], None)
    others = "".join(f"{name}: {part}\n" for name, part in parts.items())
    file = write(f"pipeline: shop\n{given.format(address)}\n{others}")

    with pytest.raises(MistakesFound) as found:
        check(file, environment={})

    (mistake,) = found.value.mistakes
    assert "address" in mistake.problem and "canary" not in str(found.value)
    assert mistake.text_position is not None and mistake.text_position.line == 2


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "[::1]:9092", "kafka-1.shop_net:1"])
def test_any_host_and_port_is_an_address_of_a_broker(write: Write, address: str) -> None:
    log = f"log: {{type: kafka, bootstrap: '{address}', value: flat-avro, registry: {{}}}}"
    given = log.replace("{}", "'https://u:p%40@registry.shop/path'")

    assert check(
        write(f"pipeline: shop\n{given}\nsource: {{type: generator}}\nsink: {{type: console}}\n"),
        environment={},
    ).pipelines


def test_a_salt_that_can_be_tried_out_is_refused(write: Write) -> None:
    short = SMALLEST.replace("pipeline: shop", "pipeline: {name: shop, salt: fifteen-letters}", 1)
    assert short != SMALLEST, "the file has a salt"

    with pytest.raises(MistakesFound) as found:
        check(write(short), environment={})
    loaded = check(write(short.replace("letters}", "characters}")), environment={})

    assert [each.problem for each in found.value.mistakes] == ["a salt has at least 16 characters"]
    assert "fifteen" not in str(found.value)
    assert not loaded.remarks


def test_comparing_regularly_is_nothing_to_remark_upon(write: Write) -> None:
    assert not check(write(f"{SMALLEST}verify: {{every: 1h}}"), environment={}).remarks


def test_a_directory_without_a_pipeline_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no pipeline file"):
        load(tmp_path, environment={})
