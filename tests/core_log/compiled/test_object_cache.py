"""What was compiled once runs again without the compiler, and as it is written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.core_log.compiled import object_cache
from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import Int64Array

pytest.importorskip("numba")

FIRST_USE = """
import sys
sys.path.insert(0, sys.argv[1])
from headwater.core_log.compiled import object_cache
from headwater.core_log.rows.json import scanner
if sys.argv[2] == "endless":
    object_cache._find_cached = lambda function, kinds: None
print(scanner.is_ready_for(1 << 20))
if sys.argv[2] == "waits":
    scanner._scan().wait()
    print(scanner.is_ready_for(1 << 20), "numba" in sys.modules)
"""
ENDLESS = "import threading; threading.Event().wait()"
STEP = 3
FACTORS = np.array([1, 10, 100], np.int64)
PROGRAM = """
import sys
import numpy as np
from headwater.core_log.compiled import byte_kernels
data = np.frombuffer(b"some text and more of it", np.uint8)
words = np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))
place = np.zeros(1, np.int64)
print(byte_kernels.are_text(data, words, place, place + 9), "numba" in sys.modules)
"""


@CompiledFunction
def stepped(number: int) -> Any:
    return number - STEP


@CompiledFunction
def measured(numbers: Any, pair: tuple[Int64Array, Any], is_wanted: bool) -> Any:
    """A bit of everything that the compiled code of this project takes and gives."""
    weights, flags = pair
    total, share = 0, 0.0
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            total += stepped(numbers[row, column]) * weights[column] * FACTORS[column % 3]
        flags[row] = total < 0
        share += 0.5
    return total, share, is_wanted and total != 0


@CompiledFunction
def cleared(numbers: Int64Array) -> None:
    numbers[:] = 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where code is kept, with nothing there yet, for a process that has loaded none."""
    monkeypatch.setattr(
        object_cache, "_directories", lambda _: [tmp_path / "no" / "such", tmp_path]
    )
    (tmp_path / "no").touch()
    for each in (stepped, measured, cleared):
        monkeypatch.setattr(each, "_ready", {})
    return tmp_path


@pytest.mark.slow
def test_code_does_what_its_source_says_when_it_is_made_and_when_it_was_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = np.arange(-12, 12, dtype=np.int32).reshape(4, 6)
    weights = np.arange(3)

    found, flags = list[Any](), list[Any]()
    for numbers in (wide[:, ::2], np.asfortranarray(wide[:, ::2])):
        for _ in ("made", "kept"):
            monkeypatch.setattr(measured, "_ready", {})
            seen = np.ones(4, np.bool_)
            found.append(measured(numbers, (weights, seen), True))
            flags.append(seen.tolist())
    plain = np.ones(4, np.bool_)
    monkeypatch.setitem(measured.function.__globals__, "stepped", stepped.function)
    said = measured.function(wide[:, ::2], (weights, plain), True)

    assert found == [said] * 4 and [type(each) for each in found[0]] == [int, float, bool]
    assert flags == [plain.tolist()] * 4
    assert len(list(place.glob("test_object_cache.measured-*.native"))) == 2, "one for each layout"


def test_code_without_a_result_has_none(place: Path) -> None:
    numbers = np.arange(3)

    assert cleared(numbers) is None
    assert numbers.tolist() == [0, 0, 0]


def test_a_damaged_cache_file_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stepped(5) == 2
    [kept] = place.glob("test_object_cache.stepped-*.native")
    whole = kept.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]

    for damaged in (b"", whole[:-1], flipped):
        kept.write_bytes(damaged)
        monkeypatch.setattr(stepped, "_ready", {})
        assert stepped(-5) == -8
        assert len(kept.read_bytes()) > len(whole) // 2
        assert kept.read_bytes() != damaged


@pytest.mark.slow
def test_another_constant_is_another_code(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stepped(5)

    monkeypatch.setattr(stepped, "_ready", {})
    monkeypatch.setitem(stepped.function.__globals__, "STEP", 4)
    names = {object_cache._name_of(each.function, ("int",)) for each in (stepped, measured)}
    monkeypatch.undo()

    assert before == 2
    assert not names & {
        object_cache._name_of(each.function, ("int",)) for each in (stepped, measured)
    }


def test_an_argument_that_no_code_takes_is_refused() -> None:
    with pytest.raises(TypeError, match="do not take a str"):
        stepped("5")


@pytest.mark.slow
def test_a_process_that_finds_code_does_not_load_the_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def run() -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, check=True
        )
        return ran.stdout.decode().split()

    first, second = run(), run()

    assert first[0] == "True", "whether it was made just now or before"
    assert second == ["True", "False"]


def run_first_use(path: Path, how: str) -> list[str]:
    """Returns the words that the program prints; it prints nothing else."""
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_USE, str(path), how], capture_output=True, check=True
    )
    assert ran.stderr == b""
    return ran.stdout.decode().split()


@pytest.mark.slow
def test_a_process_ends_without_waiting_for_the_compiler(tmp_path: Path) -> None:
    compiler = tmp_path / "numba"
    compiler.mkdir()
    (compiler / "__init__.py").write_text(ENDLESS)

    assert run_first_use(tmp_path, "endless") == ["False"]


@pytest.mark.slow
def test_a_process_of_its_own_compiles_what_a_pipeline_needs(tmp_path: Path) -> None:
    _, is_ready, has_loaded_compiler = run_first_use(tmp_path, "waits")

    assert (is_ready, has_loaded_compiler) == ("True", "False")
