"""Every module has one name, `headwater.<package>.<module>`, though links allow a second one."""

import ast
import re
import subprocess
import sys

import headwater
from tests.architecture.sources import CODE, PRODUCT, ROOT, imports_of, nodes_of, python_files
from tests.architecture.test_layers import HEAVY

PATHS = python_files(*CODE, "headwater")
SHORT = re.compile(rf"(?<![\w./-])(?:{'|'.join(PRODUCT)})(?:\.[a-z_]\w*)+")


def test_no_module_is_imported_by_its_short_name() -> None:
    strays = {
        path: short
        for path in PATHS
        if (short := {name for name in imports_of(path) if name.split(".")[0] in PRODUCT})
    }

    assert not strays


def test_no_text_names_a_module_by_its_short_name() -> None:
    """Such as entries of tables, names of loggers, programs of tests and what tests replace."""
    strays = [
        f"{path}:{node.lineno}: {name}"
        for path in PATHS
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in SHORT.findall(node.value)
        if is_module(name)
    ]

    assert not strays


def is_module(name: str) -> bool:
    """Or something in one."""
    parts = name.split(".")
    place = ROOT.joinpath(*parts)
    beside = ROOT.joinpath(*parts[:-1])
    return (
        place.is_dir() or place.with_suffix(".py").is_file() or beside.with_suffix(".py").is_file()
    )


def test_processes_load_no_module_by_its_short_name() -> None:
    program = (
        "import sys, headwater.pipelines.cli, headwater.pipelines.running.worker\n"
        "import headwater.core_log.broker.dispatch as dispatch; dispatch.load_handlers()\n"
        f"print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({PRODUCT!r})))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_package_offers_what_it_says_and_loads_it_when_it_is_used() -> None:
    program = (
        "import sys, headwater\n"
        f"heavy = set({HEAVY!r}) & sys.modules.keys()\n"
        "for name in headwater.__all__: getattr(headwater, name)\n"
        "print(*sorted(heavy), *sorted(set(headwater.__all__) ^ headwater.HOMES.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_page_names_all_that_is_public() -> None:
    page = (ROOT / "docs/python-api.md").read_text()

    assert not [name for name in headwater.__all__ if not re.search(rf"`{name}`", page)]
