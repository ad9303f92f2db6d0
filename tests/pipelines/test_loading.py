"""A pipeline file is held against its settings whole: all mistakes at once, each with its place."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from config.mistakes import MistakesFound
from connectors import SOURCES
from core_log.errors import ConfigError
from pipelines.file.loading import Checked, LoadedPipeline, check, load
from pipelines.file.spec import Backoff
from sinks import SINKS
from tests.pipelines import made_up_parts

SMALLEST = """\
pipeline: shop
source:
  type: made-up
  url: postgresql://h/shop
sink:
  type: made-up
  path: ./lake
"""
CANARY = "canary%4@\"/' 0"

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "made-up", made_up_parts.SOURCE)
    monkeypatch.setitem(SINKS, "made-up", made_up_parts.SINK)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str, name: str = "pipeline.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write_file


def one(path: Path, environment: Mapping[str, str] | None = None) -> LoadedPipeline:
    (pipeline,) = load(path, environment=environment or {})
    return pipeline


def mistakes(path: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Without the directory, hints after a dash."""
    with pytest.raises(MistakesFound) as found:
        load(path, environment=environment or {})
    return [
        str(each).removeprefix(f"{path.parent}/").replace("\n  hint: ", " - ")
        for each in found.value.mistakes
    ]


def test_the_smallest_file_is_a_whole_pipeline(write: Write) -> None:
    pipeline = one(write(SMALLEST))

    assert (pipeline.name, pipeline.source.kind) == ("shop", "made-up")
    assert [sink.name for sink in pipeline.sinks] == ["made-up"]
    assert pipeline.spec.log.history_ms == 7 * 86_400_000
    assert set(pipeline.spec.schema_changes.values()) == {"evolve"}
    assert pipeline.spec.errors.retry.backoff == Backoff(1_000, 60_000)
    assert pipeline.source.unit_setting("batch_wait_ms") == 5
    assert pipeline.sinks[0].unit_setting("commit_every_ms") == 10_000


def test_every_key_of_the_file_may_be_set(write: Write) -> None:
    text = SMALLEST.replace(
        "pipeline: shop\n",
        "pipeline: {name: shop, schema_changes: {'*': lenient, drop_column: fail}, salt: x}\n",
    )

    spec = one(write(text + FURTHER_KEYS)).spec

    assert spec.schema_changes["drop_column"] == "fail"
    assert spec.schema_changes["add_column"] == "lenient"
    assert spec.log.retention.time_ms == 30 * 86_400_000
    assert spec.log.retention.size_bytes is None
    assert spec.log.has_schemas
    assert spec.transform[0].table == ("public.users",)
    assert spec.transform[0].mask == {"email": "hash", "note": "null", "phone": "truncate(4)"}
    assert spec.route[0].source == "/tenant_(\\d+)\\.(.*)/"
    assert spec.errors.retry.backoff == Backoff(1_000, 60_000)
    assert spec.errors.dead_letter.stop_after.of_last == 100
    assert spec.tests[0].expect == {"public.orders": ()}
    assert spec.verify is not None and spec.verify.every_ms == 86_400_000
    assert spec.workers == 0


FURTHER_KEYS = """\
log:
  path: ./data
  history: 2d
  cleanup: compact,delete
  retention: {time: 30d, size: unlimited}
  schemas: true
transform:
  - table: public.users
    mask: {email: hash, note: null, phone: truncate(4)}
    drop: ssn
  - table: [public.orders, "!public.orders_old"]
    filter: "status <> 'draft'"
    add: {order_day: "date(created_at)"}
    python: shop.transforms:clean_orders
route:
  - {from: "/tenant_(\\\\d+)\\\\.(.*)/", to: "crm.$2", add_key: {tenant_id: "$1"}}
errors:
  retry: {for: 10m, backoff: 1s..1m}
  dead_letter: {stop_after: {failures: 20, of_last: 100}}
  isolate: pipeline
verify: {every: 24h}
workers: 0
tests:
  - name: a draft never reaches the lake
    given: [{table: public.orders, op: c, after: {id: 1, status: draft}}]
    expect: {public.orders: []}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", ["pipeline.yaml:2:1: did not find expected node content"]),
        ("- a", ["pipeline.yaml:1:1: a pipeline file is made of keys and values"]),
        (
            "pipelin: shop\nsorce: {}\nsink: {type: made-up, path: x}\n",
            [
                "pipeline.yaml:1:1: there is no key 'pipelin' - did you mean 'pipeline'?",
                "pipeline.yaml:1:1: the key 'pipeline' is missing",
                "pipeline.yaml:1:1: the key 'source' is missing - headwater init",
                "pipeline.yaml:2:1: there is no key 'sorce' - did you mean 'source'?",
            ],
        ),
        (
            "pipeline: shop\nsource: generator\nsink: []\n",
            [
                "pipeline.yaml:2:9: should be keys with values - write `type:` below `source:`",
                "pipeline.yaml:3:7: should have at least 1 of them",
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
                "pipeline.yaml:3:14: there is no type 'made-upp' - did you mean 'made-up'?",
            ],
        ),
    ],
)
def test_what_is_no_pipeline_is_told(write: Write, text: str, told: list[str]) -> None:
    assert mistakes(write(text)) == told


PLACEHOLDERS = """
    pipeline: shop
    source: {{type: postgres, url: 'host=h', tables: a.b, toast: placeholder}}
    log: {log}
    sink: {{type: console}}
    """


@pytest.mark.parametrize(
    "log",
    ["{}", "{cleanup: delete, retention: {time: 7d}}", "{cleanup: 'compact,delete'}"],
)
def test_placeholders_are_only_for_topics_that_keep_everything(write: Write, log: str) -> None:
    (mistake,) = mistakes(write(PLACEHOLDERS.format(log=log)))

    assert "with placeholders, only all records of a key together hold its row" in mistake


def test_a_topic_that_keeps_everything_may_have_placeholders(write: Write) -> None:
    file = write(PLACEHOLDERS.format(log="{cleanup: delete}"))

    [loaded] = load(file, environment={})

    assert loaded.name == "shop"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("log: {histroy: 7d}", "1:7: there is no key 'histroy' - did you mean 'history'?"),
        ("log: {history_ms: 5}", "1:7: there is no key 'history_ms' - did you mean 'history'?"),
        ("log: {history: 7}", "1:16: a duration has a unit - write it as 5ms, 10s or 7d"),
        ("log: {retention: {time: 7}}", "1:25: a duration has a unit"),
        ("log: {retention: {size: 7}}", "1:25: a size has a unit - write it as 64KiB or 8MiB"),
        ("log: {history: soon}", "1:16: a duration is a number and a unit, such as"),
        ("log: {value: debezium}", "1:14: should be 'debezium-json', 'flat-json'"),
        ("log: {partitions: 0}", "1:19: should be at least 1"),
        ("log: {partitions: many}", "1:19: should be a whole number"),
        ("log: {partitions: true}", "1:19: should be a number"),
        ("log: {history: true}", "1:16: should be a number"),
        ("log: {schemas: maybe}", "1:16: should be true or false"),
        ("log: {topic: '{tabel}'}", "1:14: a topic is made of {pipeline}, {schema} and {table}"),
        ("log: {path: }", "1:13: there is no value - give it one, or take the key out"),
        ("log: {type: kafka}", "1:1: a Kafka cluster needs an address - bootstrap: HOST:PORT"),
        ("log: {bootstrap: h:1}", "1:18: the embedded log has no bootstrap"),
        ("log: {value: flat-avro}", "1:14: Avro needs a schema registry"),
        ("log: {listen: here}", "1:15: should match"),
        ("log: []", "1:6: should be keys with values"),
        ("workers: some", "1:10: should be 'auto' or a whole number"),
        ("workers: -1", "1:10: should be 'auto' or at least 0"),
        ("transform: {table: a}", "1:12: should be a list"),
        ("transform: [{filter: no}]", "1:13: the key 'table' is missing"),
        ("transform: [{table: '/(/'}]", "1:21: this is no regular expression: missing )"),
        ("transform: [{table: a, mask: {b: hsh}}]", "1:34: a mask is redact, hash, null, or"),
        ("transform: [{table: a, mask: {b: hash}, drop: b}]", "1:47: 'b' is masked as well"),
        ("transform: [{table: a, python: os.system}]", "1:32: should match"),
        ("route: [{from: 'a*', to: b.$2}]", "1:16: the pattern has no group 2 - it has 1"),
        ("errors: {retry: {backoff: 1m..1s}}", "1:27: the first pause is longer than the"),
        ("verify: {every: 1h, cron: 0 3 * * *}", "1:9: a time is given by either `every` or"),
        ("verify: {}", "1:9: a time is given by either `every` or"),
        ("tests: [{name: a, given: [], expect: {}}]", "1:26: should have at least 1 of them"),
        ("limits: {slice_size: 5}", "1:22: a size has a unit"),
    ],
)
def test_a_mistake_is_told_where_it_stands(write: Write, line: str, told: str) -> None:
    (mistake,) = mistakes(write(f"{line}\n{SMALLEST}"))

    assert mistake.startswith(f"pipeline.yaml:{told}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tabels: a", "5:3: there is no key 'tabels' - did you mean 'tables'?"),
        ("snapshot: {mod: never}", "5:14: there is no key 'mod' - did you mean 'mode'?"),
        ("snapshot: {mode: nevr}", "5:20: should be 'initial' or 'never' - did you mean 'never'?"),
        ("slot: {max_retained: 5}", "5:24: a size has a unit"),
        ("slot: {name: Shop!}", "5:16: should match ^[a-z0-9_]{0,63}$"),
        ("batch_wait: 5", "5:15: a duration has a unit"),
        ("batch_weit: 5ms", "5:3: there is no key 'batch_weit' - did you mean 'batch_wait'?"),
        ("tables: 5", "5:11: should be text - put it between quotes"),
        ("keys: {public.t: [1]}", "5:21: should be text - put it between quotes"),
        ("slot.nam: x", "5:3: there is no key 'slot.nam'"),
        ("tombstones.on.delete: true", "5:3: the key 'tombstones.on.delete' has another place"),
        ("time.precision.mode: connect", "5:3: this type has no key for 'time.precision.mode'"),
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

    assert [(each.path.name, each.place and each.place.line) for each in found.value.mistakes] == [
        ("a.yaml", 1),
        ("a.yaml", 2),
        ("b.yml", 1),
        ("b.yml", 3),
        ("b.yml", 5),
        ("c.yaml", 1),
    ]
    assert str(found.value).startswith("6 mistakes\n")


@pytest.mark.parametrize(
    ("debezium", "ours"),
    [
        ("table.include.list: public.a, public\\.b", {"tables": ("public.a", "public.b")}),
        ("table.include.list: public.(a|b)", {"tables": ("/public.(a|b)/",)}),
        ("table.exclude.list: public.tmp_.*", {"tables": ("!/public.tmp_.*/",)}),
        ("tables: public.*\n  table.exclude.list: public.a", {"tables": ("public.*", "!public.a")}),
        (
            "message.key.columns: public.a:x,y;public.b:z",
            {"keys": {"public.a": ("x", "y"), "public.b": ("z",)}},
        ),
        ("heartbeat.interval.ms: 5000", {"heartbeat_ms": 5_000}),
        ("decimal.handling.mode: precise", {"decimal": "precise"}),
    ],
)
def test_debezium_s_spellings_are_taken(write: Write, debezium: str, ours: dict[str, Any]) -> None:
    text = SMALLEST.replace("sink:", f"  {debezium}\nsink:")

    settings = one(write(text)).source.settings

    assert {name: getattr(settings, name) for name in ours} == ours


def test_debezium_s_dotted_keys_become_nested_ones(write: Write) -> None:
    lines = "  slot.name: mine\n  snapshot.mode: no_data\n  snapshot.max.threads: 4\nsink:"

    settings = one(write(SMALLEST.replace("sink:", lines))).source.settings

    assert isinstance(settings, made_up_parts.MadeUpSourceSettings)
    assert settings.slot.name == "mine"
    assert (settings.snapshot.mode, settings.snapshot.parallel) == ("never", 4)


def test_a_key_in_both_spellings_is_a_mistake(write: Write) -> None:
    lines = "  slot: {name: a}\n  slot.name: b\nsink:"

    (mistake,) = mistakes(write(SMALLEST.replace("sink:", lines)))

    assert mistake.startswith("pipeline.yaml:6:3: this is said by 'name' as well")


def test_sinks_of_one_type_get_names_of_their_own(write: Write) -> None:
    listed = (
        "sink:\n" + "  - {type: made-up, path: a}\n" * 2 + "  - {type: made-up, path: a, name: b}"
    )

    pipeline = one(write(SMALLEST.replace("sink:\n  type: made-up\n  path: ./lake", listed)))

    assert [sink.name for sink in pipeline.sinks] == ["made-up", "made-up-2", "b"]


def test_two_sinks_cannot_have_one_name(write: Write) -> None:
    listed = "sink:\n" + "  - {type: made-up, path: a, name: b}\n" * 2

    told = mistakes(write(SMALLEST.replace("sink:\n  type: made-up\n  path: ./lake\n", listed)))

    assert told == ["pipeline.yaml:7:36: the name 'b' is taken - choose another one"]


def test_a_directory_is_as_many_pipelines_as_it_has_files(write: Write) -> None:
    write(SMALLEST, "b.yaml")
    write(SMALLEST.replace("shop", "crm", 1), "a.yml")
    write("no pipeline", "notes.txt")
    directory = write("no pipeline", ".hidden.yaml").parent

    pipelines = load(directory, environment={})

    assert [each.name for each in pipelines] == ["crm", "shop"]


def test_a_name_is_for_one_pipeline_and_a_directory_for_one_log(write: Write) -> None:
    write(SMALLEST, "a.yaml")
    directory = write(SMALLEST + "log: {path: elsewhere}", "b.yaml").parent

    with pytest.raises(MistakesFound) as found:
        load(directory, environment={})

    assert [each.problem for each in found.value.mistakes] == [
        "the pipeline 'shop' is in a.yaml as well",
        "its log is another one than that of a.yaml",
    ]


def test_pipelines_that_may_meet_in_one_topic_are_remarked_upon(write: Write) -> None:
    write(SMALLEST + "log: {topic: '{schema}.{table}'}", "a.yaml")
    text = SMALLEST.replace("shop", "crm", 1) + "log: {topic: '{schema}.{table}'}"
    directory = write(text, "b.yaml").parent

    found = check(directory, environment={})

    assert [each.problem for each in found.remarks] == ["its topics are named like those of a.yaml"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("transform: [{table: a, mask: {b: hash}}]", "a hash without a salt"),
        ("log: {retention: {time: 30d}}", "retention does nothing"),
        ("verify: {every: 1h}", "this version does not compare anything yet"),
    ],
)
def test_what_is_seldom_meant_is_remarked_upon(write: Write, line: str, problem: str) -> None:
    (remark,) = check(write(f"{SMALLEST}{line}"), environment={}).remarks

    assert remark.problem.startswith(problem)
    assert remark.place is not None and remark.place.line == 8


def test_a_directory_without_a_pipeline_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no pipeline file"):
        load(tmp_path, environment={})


def test_what_is_unset_is_told_once_and_hides_nothing_else(write: Write) -> None:
    text = (
        SMALLEST.replace("postgresql://h/shop", "${env:URL}") + "workers: ${env:N}\nlog: {a: 1}\n"
    )

    told = mistakes(write(text))

    assert told == [
        "pipeline.yaml:4:8: the environment has no URL - export URL=...",
        "pipeline.yaml:8:10: the environment has no N - export N=...",
        "pipeline.yaml:9:7: there is no key 'a' - " + told[2].rpartition(" - ")[2],
    ]


def test_where_the_secrets_are_not_a_file_can_be_checked_all_the_same(write: Write) -> None:
    path = write(SMALLEST.replace("postgresql://h/shop", "${env:URL}"))

    found: Checked = check(path, environment={}, may_be_unset=True)

    assert [str(each.place) for each in found.unset] == ["Place(line=4, column=8)"]
    assert (found.names, found.pipelines) == (("shop",), ())


def test_a_value_by_reference_has_the_type_that_its_key_wants(write: Write) -> None:
    path = write(SMALLEST + "workers: ${env:N}\nlog: {history: '${env:H}', schemas: '${env:S}'}")

    spec = one(path, {"N": "3", "H": "2d", "S": "true"}).spec

    assert (spec.workers, spec.log.history_ms, spec.log.has_schemas) == (3, 172_800_000, True)


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST.replace("url: postgresql://h/shop", "${env:C}: 1") + "workers: ${env:C}\n",
        SMALLEST.replace("type: made-up", "type: ${env:C}", 1),
        SMALLEST + "log: {value: '${env:C}', partitions: '${env:C}', listen: 'x${env:C}'}\n",
        SMALLEST + "log: {history: '${env:C}', topic: '${env:C}', registry: '${env:C}'}\n",
        SMALLEST + "transform: [{table: '/(${env:C}/', mask: {a: '${env:C}'}}]\n",
        SMALLEST + "errors: {retry: {backoff: '${env:C}'}, isolate: '${env:C}'}\n",
        SMALLEST.replace("shop\n", "'${env:C}'\n", 1),
        SMALLEST.replace("postgresql://h/shop", "a://u:${env:C}@h\n  slot: {name: '${env:C}'}"),
    ],
)
def test_a_secret_is_never_told(write: Write, text: str) -> None:
    with pytest.raises(MistakesFound) as found:
        load(write(text), environment={"C": CANARY})

    told = f"{found.value}{found.value!r}{found.value.facts}{found.value.__cause__!r}"
    assert "canary" not in told


def test_a_loaded_pipeline_does_not_tell_its_secrets_but_knows_them(write: Write) -> None:
    text = SMALLEST.replace("postgresql://h/shop", "postgresql://u:${env:C}@h/shop")

    pipeline = one(
        write(text.replace("shop\n", "{name: shop, salt: salty-canary}\n", 1)), {"C": CANARY}
    )

    assert "canary" not in repr(pipeline)
    assert "canary" not in pipeline.redaction.scrub(f"{CANARY} {CANARY!r} and salty-canary")


def test_a_password_written_into_the_file_is_a_secret_as_well(write: Write) -> None:
    pipeline = one(write(SMALLEST.replace("//h/", "//u:canary-pass@h/")))

    assert "canary" not in pipeline.redaction.scrub("wrong password canary-pass for u")


def test_a_pipeline_goes_through_a_pipe_and_stays_what_it_was(write: Write) -> None:
    text = SMALLEST.replace("postgresql://h/shop", "${env:C}\n  snapshot.mode: never")
    pipeline = one(write(text + FURTHER_KEYS), {"C": CANARY})

    again = LoadedPipeline.from_wire(pipeline.to_wire())

    assert again == pipeline
    assert "canary" not in again.redaction.scrub(CANARY)


def test_relative_paths_are_meant_from_the_file(write: Write, monkeypatch: Any) -> None:
    path = write(SMALLEST + "log: {path: ../here}", "sub/p.yaml")
    monkeypatch.chdir(path.parent)

    pipeline = one(Path("p.yaml"))

    assert pipeline.directory == path.parent.resolve()
    assert pipeline.log_path == path.parent.parent.resolve() / "here"
