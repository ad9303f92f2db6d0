"""A pipeline file becomes settings: every key, in every spelling, with all that it leaves out."""

from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.file.spec import BackoffSettings
from tests.pipelines import fake_components
from tests.pipelines.pipeline_files import FURTHER_KEYS, PLACEHOLDERS, SMALLEST, Write, one

SHARED = """
pipeline: shop
source: {{type: generator, rate: {rate}}}
sink: {{type: sql, url: "${{env:TARGET}}"}}
log: {{type: kafka, bootstrap: "{bootstrap}", path: "{path}"}}
{more}
"""


def test_the_smallest_file_is_a_whole_pipeline(write: Write) -> None:
    pipeline = one(write(SMALLEST))

    assert (pipeline.name, pipeline.source.kind) == ("shop", "made-up")
    assert [sink.name for sink in pipeline.sinks] == ["made-up"]
    assert pipeline.spec.log.history_ms == 7 * 86_400_000
    assert set(pipeline.spec.schema_changes.policies.values()) == {"evolve"}
    assert pipeline.spec.schema_changes.settle_ms == 30_000
    assert pipeline.spec.errors.retry.backoff == BackoffSettings(1_000, 60_000)
    assert pipeline.source.task_setting("batch_wait_ms") == 5
    assert pipeline.sinks[0].task_setting("commit_every_ms") == 10_000


def test_every_key_of_the_file_may_be_set(write: Write) -> None:
    text = SMALLEST.replace(
        "pipeline: shop\n",
        "pipeline: {name: shop, schema_changes: {'*': lenient, drop_column: fail, settle: 5m},"
        " salt: a-salt-for-tests}\n",
    )

    spec = one(write(text + FURTHER_KEYS)).spec

    assert spec.schema_changes.policies["drop_column"] == "fail"
    assert spec.schema_changes.policies["add_column"] == "lenient"
    assert spec.schema_changes.settle_ms == 300_000
    assert spec.log.retention.time_ms == 30 * 86_400_000
    assert spec.log.retention.size_bytes is None
    assert spec.log.has_schemas
    assert spec.transform[0].table == ("public.users",)
    assert spec.transform[0].mask == {"email": "hash", "note": "null", "phone": "truncate(4)"}
    assert spec.route[0].source == "/tenant_(\\d+)\\.(.*)/"
    assert spec.errors.retry.backoff == BackoffSettings(1_000, 60_000)
    assert spec.errors.dead_letter.stop_after.of_last == 100
    assert spec.tests[0].expect == {"public.orders": ()}
    assert spec.verify is not None and spec.verify.every_ms == 86_400_000
    assert spec.workers == 0


def test_a_topic_that_keeps_everything_may_have_placeholders(write: Write) -> None:
    file = write(PLACEHOLDERS.format(log="{cleanup: delete}"))

    [loaded] = load(file, environment={})

    assert loaded.name == "shop"


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

    assert isinstance(settings, fake_components.MadeUpSourceSettings)
    assert settings.slot.name == "mine"
    assert (settings.snapshot.mode, settings.snapshot.parallel) == ("never", 4)


def test_sinks_of_one_type_get_names_of_their_own(write: Write) -> None:
    listed = (
        "sink:\n" + "  - {type: made-up, path: a}\n" * 2 + "  - {type: made-up, path: a, name: b}"
    )

    pipeline = one(write(SMALLEST.replace("sink:\n  type: made-up\n  path: ./lake", listed)))

    assert [sink.name for sink in pipeline.sinks] == ["made-up", "made-up-2", "b"]


def test_a_directory_is_as_many_pipelines_as_it_has_files(write: Write) -> None:
    write(SMALLEST, "b.yaml")
    write(SMALLEST.replace("shop", "crm", 1), "a.yml")
    write("no pipeline", "notes.txt")
    directory = write("no pipeline", ".hidden.yaml").parent

    pipelines = load(directory, environment={})

    assert [each.name for each in pipelines] == ["crm", "shop"]


def test_a_value_by_reference_has_the_type_that_its_key_wants(write: Write) -> None:
    path = write(SMALLEST + "workers: ${env:N}\nlog: {history: '${env:H}', schemas: '${env:S}'}")

    spec = one(path, {"N": "3", "H": "2d", "S": "true"}).spec

    assert (spec.workers, spec.log.history_ms, spec.log.has_schemas) == (3, 172_800_000, True)


def test_a_named_directory_of_the_log_goes_to_worker_processes(
    write: Write, tmp_path: Path
) -> None:
    loaded = one(write(SMALLEST))

    named = loaded.with_log_at(tmp_path / "elsewhere")

    assert LoadedPipeline.from_wire(named.to_wire()).log_path == tmp_path / "elsewhere"
    assert LoadedPipeline.from_wire(loaded.to_wire()).log_path == loaded.log_path


def test_relative_paths_are_meant_from_the_file(write: Write, monkeypatch: Any) -> None:
    path = write(SMALLEST + "log: {path: ../here}", "sub/p.yaml")
    monkeypatch.chdir(path.parent)

    pipeline = one(Path("p.yaml"))

    assert pipeline.directory == path.parent.resolve()
    assert pipeline.log_path == path.parent.parent.resolve() / "here"


def digest(directory: Path, target: str = "sqlite:///t.db", **written: object) -> str:
    file = directory / "pipeline.yaml"
    values = {"rate": 1, "bootstrap": "a:1", "path": "data", "more": ""} | written
    file.write_text(SHARED.format(**values))
    return load(file, environment={"TARGET": target})[0].digest


@pytest.mark.parametrize(
    "other",
    [
        {"bootstrap": "b:1"},
        {"path": "/var/other"},
        {"more": "workers: 3"},
        {"more": "http: {listen: 127.0.0.1:8471}"},
        {"more": "# a remark"},
        {"target": "sqlite:///elsewhere.db"},
    ],
)
def test_keys_of_one_machine_make_no_other_version(tmp_path: Path, other: dict[str, str]) -> None:
    assert digest(tmp_path, **other) == digest(tmp_path)


def test_another_source_or_sink_or_log_is_another_version(tmp_path: Path) -> None:
    assert digest(tmp_path, rate=2) != digest(tmp_path)
    assert digest(tmp_path, more="limits: {slice_rows: 5}") != digest(tmp_path)
