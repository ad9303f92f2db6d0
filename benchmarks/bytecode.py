"""Bytecode of everything that is measured, as installing a package makes it once."""

import compileall
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("config", "connectors", "core_log", "pipelines", "sinks", "benchmarks")


def compile_as_installed() -> None:
    """Else a copy of the sources that was never run, or where Python is told to keep no bytecode,
    has every process that is measured compile them anew."""
    for name in MEASURED:
        compileall.compile_dir(ROOT / name, quiet=1)
