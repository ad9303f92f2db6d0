"""The doctor names what would stop a pipeline with what helps, and changes nothing."""

from pathlib import Path

import pytest

from headwater.pipelines.preview import doctor_checks
from headwater.pipelines.terminal import exit_codes
from tests.databases import Guest
from tests.pipelines.conftest import Headwater
from tests.pipelines.running.owner import owning


def pipeline(directory: Path, *, name: str = "shop", url: str = "sqlite:///shop.db") -> Path:
    """A file whose source needs nothing."""
    file = directory / f"{name}.yaml"
    file.write_text(
        f"pipeline: {name}\nsource: {{type: generator}}\nsink: {{type: sql, url: '{url}'}}\n"
    )
    return file


def test_a_sound_pipeline_is_told_so_line_by_line(headwater: Headwater, tmp_path: Path) -> None:
    ran = headwater("doctor", pipeline(tmp_path))

    assert ran.code == exit_codes.OK
    assert all(line.startswith(("ok ", "remark ", "  ")) for line in ran.data.splitlines())
    assert "shop source" in ran.data and "shop sql" in ran.data
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shop.yaml"], "nothing was made"


def test_an_unreachable_target_ends_with_its_own_code(headwater: Headwater, tmp_path: Path) -> None:
    file = pipeline(tmp_path, url="postgresql://shop:canary-word@127.0.0.1:1/shop")

    plain, asked = headwater("doctor", file), headwater("doctor", file, "--json")

    assert plain.code == asked.code == exit_codes.UNREACHABLE
    assert asked.envelope["ok"] is False
    (problem,) = [each for each in asked.envelope["data"] if each["is_fatal"]]
    assert problem["what"] == "shop sql" and problem["hint"]
    for said in (plain.data, plain.remarks, asked.data, asked.remarks):
        assert "canary-word" not in said


@pytest.mark.parametrize(
    ("source", "sink", "hint"),
    [
        ("{type: files, path: ./none/*.csv}", "{type: console}", "mkdir -p"),
        ("{type: generator}", "{type: sql, url: 'sqllite:///shop.db'}", "such as sqlite"),
    ],
)
def test_a_cure_is_said_once_and_never_installs_what_was_mistyped(
    headwater: Headwater, tmp_path: Path, source: str, sink: str, hint: str
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"pipeline: shop\nsource: {source}\nsink: {sink}\n")

    ran = headwater("doctor", file)

    assert ran.code == exit_codes.UNREACHABLE
    assert ran.data.count(hint) == 1
    assert "hint:" not in ran.data and "pip install" not in ran.data


def test_a_database_that_lacks_something_is_reported_with_the_sql_that_cures_it(
    headwater: Headwater, tmp_path: Path, guest: Guest
) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"pipeline: shop\nsource: {{type: postgres, url: '{guest.url}', tables: [public.*]}}\n"
        "sink: {type: sql, url: 'sqlite:///shop.db'}\n"
    )

    ran = headwater("doctor", file)
    [cure] = [line.strip() for line in ran.data.splitlines() if "CREATE PUBLICATION" in line]
    guest.execute(cure)

    assert ran.code == exit_codes.UNREACHABLE
    assert headwater("doctor", file).code == exit_codes.OK


def test_a_directory_that_cannot_be_written_is_named(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pipeline(tmp_path)
    (tmp_path / "data").write_text("in the way")

    ran = headwater("doctor", file)

    assert ran.code == exit_codes.UNREACHABLE
    assert "cannot be written to" in ran.data and "log.path" in ran.data


def test_java_is_asked_for_only_where_a_sink_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/java/here")

    without = list(doctor_checks.examine_machine([], needs_java=False))
    needed = list(doctor_checks.examine_machine([], needs_java=True))

    assert not [each for each in without if "java" in each.what]
    (java,) = [each for each in needed if each.what == "java"]
    assert java.is_fatal and "install" in java.hint


@pytest.mark.parametrize(
    ("said", "is_fatal"),
    [
        ('openjdk version "17.0.9" 2023-10-17', False),
        ('openjdk version "21" 2023-09-19', False),
        ('java version "1.8.0_401"', True),
        ("nothing that anybody understands", True),
        (None, True),
    ],
)
def test_java_is_known_by_what_it_says(said: str | None, is_fatal: bool) -> None:
    assert doctor_checks.check_java(said).is_fatal is is_fatal


def test_an_old_python_is_named() -> None:
    assert doctor_checks.check_python((3, 10)).is_fatal
    assert not doctor_checks.check_python((3, 11)).problem


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "DISK_BYTES_MIN", 1 << 62)

    found = doctor_checks.check_directory(tmp_path / "not" / "there" / "yet")

    assert found.is_fatal and "are free" in found.problem
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_pipelines_that_no_file_speaks_of_are_orphans(headwater: Headwater, tmp_path: Path) -> None:
    file = pipeline(tmp_path)
    with owning(tmp_path / "data") as owner:
        paused = headwater("pause", "shop", "--data", tmp_path / "data")
        from headwater.pipelines.journal.control import pause_signal, write_control

        for name in ("shop", "left-over"):
            signal = pause_signal(table="", is_paused=True, id="1")
            owner.do(write_control(owner.log, name, [signal], now_ms=1))
        ran = headwater("doctor", file)

    assert paused.code == exit_codes.INVALID, "nobody knows it yet"
    assert ran.code == exit_codes.DIFFERENT
    assert "pipeline left-over has topics or positions, but no file here" in ran.data
    assert "headwater drop left-over" in ran.data
    assert "pipeline shop has left" not in ran.data


def test_a_doctor_without_a_file_examines_only_the_machine(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = headwater("doctor")

    assert ran.code == exit_codes.OK
    assert "python" in ran.data and "disk of data" in ran.data
